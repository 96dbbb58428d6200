"""What a machine computes in, found without loading an engine."""

from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")


def cpu_dtype(cpuinfo: Path = CPUINFO) -> str:
    """bfloat16 only where the CPU computes in it: where it is emulated, prefill runs at a fifth of float32's speed."""
    flags = set(cpuinfo.read_text(encoding="utf-8").split()) if cpuinfo.exists() else set()
    return "bfloat16" if flags & {"avx512_bf16", "amx_bf16", "bf16"} else "float32"
