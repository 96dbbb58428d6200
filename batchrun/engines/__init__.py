"""The engines, each importing its library only when it is started."""

from batchrun.engines.base import Engine, EngineConfig
from batchrun.errors import ConfigError


def resolve_kind(kind: str) -> str:
    """The engine that `auto` is on this machine: vLLM, else transformers.

    Raises EngineUnavailableError, with the commands that install them, where there is none.
    """
    from batchrun.engines import transformers, vllm

    if kind != "auto":
        return kind
    if not vllm.is_installed() and transformers.is_installed():
        return "transformers"
    vllm.require_installed()
    return "vllm"


def resolve_device_and_dtype(kind: str, dtype: str) -> tuple[str, str]:
    """The device, and the dtype that `auto` is on it."""
    from batchrun.engines import lead, transformers, vllm

    if kind == "lead":
        return lead.DEVICE, lead.DTYPE
    if kind == "transformers":
        return transformers.resolve_device_and_dtype(dtype)
    return vllm.resolve_device_and_dtype(dtype)


def check_speculation(kind: str, speculation: str) -> None:
    """Raise ConfigError where an engine does not guess ahead as the spec asks."""
    if speculation != "off" and kind != "vllm":
        raise ConfigError(
            f"engine.speculation is {speculation!r}, which the {kind} engine does not have",
            'Set engine.speculation to "off", or engine.kind to "vllm".',
        )


def start(config: EngineConfig) -> Engine:
    """Load the engine. Raises EngineUnavailableError with what it said where it does not start."""
    check_speculation(config.kind, config.speculation)
    if config.kind == "lead":
        from batchrun.engines.lead import LeadEngine

        return LeadEngine(config)
    if config.kind == "vllm":
        from batchrun.engines.vllm import VllmEngine

        return VllmEngine(config)
    if config.kind == "transformers":
        from batchrun.engines.transformers import TransformersEngine

        return TransformersEngine(config)
    reason = f"there is no engine {config.kind!r}"
    raise ConfigError(reason, "Set engine.kind to auto, vllm, transformers or lead.")
