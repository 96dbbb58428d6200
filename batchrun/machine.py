"""What this machine is, by those of its parts that decide how fast an engine runs, and which one."""

import os
import subprocess
from contextlib import suppress
from importlib import metadata
from pathlib import Path

GPUS = Path("/proc/driver/nvidia/gpus")
CPUINFO = Path("/proc/cpuinfo")


def device_name(device: str) -> str:
    """Of the first GPU where `device` is `cuda`, else of the CPU, with the number of cores that batchrun may use.

    Loads no driver and no library; where the system does not tell, it is `device` itself.
    """
    if device == "cuda":
        return _value(next(GPUS.glob("*/information"), None), "Model") or _asked() or device
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{_value(CPUINFO, 'model name') or device} ({cores} cores)"


def installed_version(*packages: str) -> str | None:
    """Of the first of these packages that is installed here."""
    for package in packages:
        with suppress(metadata.PackageNotFoundError):
            return metadata.version(package)
    return None


def _value(path: Path | None, name: str) -> str | None:
    """That of the first line `name : value` of a file."""
    with suppress(OSError):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path else []
        pairs = (line.partition(":") for line in lines)
        return next((value.strip() for key, _, value in pairs if key.strip() == name), None)
    return None


def gpu_memory() -> list[tuple[int, int]]:
    """Free and total bytes of each GPU, as `nvidia-smi` tells them; nothing where it does not."""
    rows = (line.replace(" ", "").split(",") for line in _nvidia_smi("memory.free,memory.total", "nounits"))
    numbers = (
        row for row in rows if all(word.isdecimal() for word in row)
    )  # [N/A] where it is the machine's
    return [(int(free) << 20, int(total) << 20) for free, total in numbers]


def _asked() -> str | None:
    return next(iter(_nvidia_smi("name")), "").strip() or None


def _nvidia_smi(query: str, *form: str) -> list[str]:
    command = ["nvidia-smi", f"--query-gpu={query}", f"--format={','.join(['csv', 'noheader', *form])}"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return []
    return said.stdout.splitlines()
