"""The engines, each importing its library only when it is started."""

from batchrun.engines.base import Engine, EngineConfig
from batchrun.errors import ConfigError


def resolve_kind(kind: str) -> str:
    """The engine that `auto` is on this machine. Raises EngineUnavailableError where there is none."""
    from batchrun.engines import vllm

    if kind == "auto":
        vllm.require_installed()
        return "vllm"
    return kind


def resolve_device_and_dtype(kind: str, dtype: str) -> tuple[str, str]:
    """The device, and the dtype that `auto` is on it."""
    from batchrun.engines import lead, vllm

    if kind == "lead":
        return lead.DEVICE, lead.DTYPE
    return vllm.resolve_device_and_dtype(dtype)


def start(config: EngineConfig) -> Engine:
    """Load the engine. Raises EngineUnavailableError with what it said where it does not start."""
    if config.kind == "lead":
        from batchrun.engines.lead import LeadEngine

        return LeadEngine(config)
    if config.kind == "vllm":
        from batchrun.engines.vllm import VllmEngine

        return VllmEngine(config)
    raise ConfigError(f"there is no engine {config.kind!r}", "Set engine.kind to auto, vllm or lead.")
