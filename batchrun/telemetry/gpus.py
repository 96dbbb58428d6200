"""What the run's GPUs do, by NVML: how busy they are, and how much memory is in use."""

import os
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from batchrun.engines.base import EngineConfig

READ_SECONDS = 2.0
"""NVML's own figure is a mean over up to a second; reading it takes about a millisecond a GPU."""
_PARALLEL = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")


@dataclass(frozen=True, kw_only=True)
class GpuUse:
    """`utilization`: share of time with a kernel at work, the mean over GPUs and over what was read so far;
    `memory_bytes` of all of them, the most that was read.

    Memory counts whoever uses it. None: there is no GPU, or nobody to ask.
    """

    utilization: float | None = None
    memory_bytes: int | None = None


class Gpus:
    """The first of the visible GPUs, as many as the engine is told to use. For one thread.

    Without `nvidia-ml-py`, without a driver, or where an answer fails, the use is not known; no error.
    """

    def __init__(self, config: EngineConfig, environment: Mapping[str, str] = os.environ) -> None:
        self._sum_of_shares, self._num_reads, self._most_bytes = 0.0, 0, 0
        self._use = GpuUse()
        self._read_at: float | None = None
        self._nvml = None if config.device == "cpu" else _nvml()
        self._handles = [] if self._nvml is None else _handles(self._nvml, environment, _count(config))

    def use(self) -> GpuUse:
        """Since the first call, read again where the last reading is `READ_SECONDS` old."""
        now = time.monotonic()
        if self._handles and (self._read_at is None or now - self._read_at >= READ_SECONDS):
            self._use, self._read_at = self._read(), now
        return self._use

    def _read(self) -> GpuUse:
        nvml: Any = self._nvml
        try:
            shares = [nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100 for handle in self._handles]
            used = [int(nvml.nvmlDeviceGetMemoryInfo(handle).used) for handle in self._handles]
        except nvml.NVMLError:
            return self._use
        self._num_reads += 1
        self._sum_of_shares += sum(shares) / len(shares)
        self._most_bytes = max(self._most_bytes, sum(used))
        return GpuUse(utilization=self._sum_of_shares / self._num_reads, memory_bytes=self._most_bytes)


def memory_by_process() -> dict[int, int]:
    """Bytes that each process holds on GPUs of this machine, by its id; empty where nobody tells. In a container NVML
    may tell the ids that the processes have outside.
    """
    nvml, held = _nvml(), Counter[int]()
    for handle in [] if nvml is None else _handles(nvml, {}, sys.maxsize):
        try:
            for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle):
                held[process.pid] += process.usedGpuMemory or 0
        except nvml.NVMLError:
            continue
    return dict(held)


def _nvml() -> Any:
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def _handles(nvml: Any, environment: Mapping[str, str], count: int) -> list[Any]:
    """CUDA_VISIBLE_DEVICES holds numbers, or ids that NVML knows, too; without it all are visible."""
    named = environment.get("CUDA_VISIBLE_DEVICES")
    try:
        names = map(str, range(nvml.nvmlDeviceGetCount())) if named is None else named.split(",")
        return [_handle(nvml, name.strip()) for name in names if name.strip()][:count]
    except nvml.NVMLError:
        return []


def _handle(nvml: Any, name: str) -> Any:
    if name.isdigit():
        return nvml.nvmlDeviceGetHandleByIndex(int(name))
    return nvml.nvmlDeviceGetHandleByUUID(name)


def _count(config: EngineConfig) -> int:
    count = 1
    for name in _PARALLEL:
        size = config.options.get(name, 1)
        count *= size if isinstance(size, int) and size > 0 else 1
    return count
