"""GPU figures, by an NVML that the test holds in its hand: this machine need not have one."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from batchrun.telemetry import gpus
from batchrun.telemetry.gpus import Gpus, GpuUse, memory_by_process
from tests.engines.requests import make_config


class Nvml:
    """Four GPUs; number n is busy 10·n percent and has n GiB in use."""

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        self.num_reads = 0
        self.is_broken = False

    def nvmlInit(self) -> None:  # noqa: N802
        if self.is_broken:
            raise self.NVMLError

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 4

    def nvmlDeviceGetHandleByIndex(self, number: int) -> int:  # noqa: N802
        if number > 3:
            raise self.NVMLError
        return number

    def nvmlDeviceGetHandleByUUID(self, name: str) -> int:  # noqa: N802
        return int(name.removeprefix("GPU-"))

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:  # noqa: N802
        if self.is_broken:
            raise self.NVMLError
        self.num_reads += 1
        return SimpleNamespace(gpu=10 * handle)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:  # noqa: N802
        if handle == 2:
            raise self.NVMLError
        whole = SimpleNamespace(pid=77, usedGpuMemory=5 << 30)
        return [whole, SimpleNamespace(pid=80 + handle, usedGpuMemory=None)]

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(used=handle << 30)


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    found = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", found)
    return found


def on_gpus(count: int, environment: dict[str, str], device: str = "cuda") -> Gpus:
    options = {"tensor_parallel_size": count} if count > 1 else {}
    return Gpus(make_config("vllm", Path(), device=device, options=options), environment)


@pytest.mark.parametrize(
    ("count", "environment", "expected"),
    [
        (1, {}, (0.0, 0)),
        (4, {}, (0.15, 6)),
        (1, {"CUDA_VISIBLE_DEVICES": "3"}, (0.3, 3)),
        (2, {"CUDA_VISIBLE_DEVICES": "3, 1,2"}, (0.2, 4)),
        (1, {"CUDA_VISIBLE_DEVICES": "GPU-2"}, (0.2, 2)),
        (1, {"CUDA_VISIBLE_DEVICES": ""}, (None, None)),
        (1, {"CUDA_VISIBLE_DEVICES": "9"}, (None, None)),
    ],
)
def test_the_gpus_of_the_run_are_read(
    nvml: Nvml, count: int, environment: dict[str, str], expected: tuple[float | None, int | None]
) -> None:
    """The first of the visible ones, as many as the engine uses: the mean share, and all their memory."""
    share, gibibytes = expected
    use = on_gpus(count, environment).use()
    assert share == (None if use.utilization is None else pytest.approx(use.utilization))
    assert use.memory_bytes == (None if gibibytes is None else gibibytes << 30)


def test_they_are_read_every_two_seconds_at_most(nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress is told twice a second."""
    one = on_gpus(1, {})
    assert one.use() == one.use()
    assert 1 == nvml.num_reads
    monkeypatch.setattr(gpus, "READ_SECONDS", 0.0)
    one.use()
    assert 2 == nvml.num_reads


def test_the_use_is_that_of_the_whole_run(nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean of the shares and the most of the memory: a run's last moment is its drain."""
    monkeypatch.setattr(gpus, "READ_SECONDS", 0.0)
    one = on_gpus(1, {"CUDA_VISIBLE_DEVICES": "3"})
    one.use()
    monkeypatch.setattr(nvml, "nvmlDeviceGetUtilizationRates", lambda _: SimpleNamespace(gpu=0))
    monkeypatch.setattr(nvml, "nvmlDeviceGetMemoryInfo", lambda _: SimpleNamespace(used=0))
    use = one.use()
    assert 0.15 == pytest.approx(use.utilization)
    assert 3 << 30 == use.memory_bytes


def test_without_a_gpu_there_is_no_figure(nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU, without the package, without a driver, and when an answer fails: None, never zero, no error."""
    assert GpuUse() == on_gpus(1, {}, device="cpu").use()
    lost = on_gpus(1, {})
    nvml.is_broken = True
    assert GpuUse() == lost.use()
    assert GpuUse() == on_gpus(1, {}).use()
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert GpuUse() == on_gpus(1, {}).use()


def test_what_processes_hold_is_summed_over_the_gpus(nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over all, whichever are visible to the run; one that does not answer is passed over, and so is no driver."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert {77: 15 << 30, 80: 0, 81: 0, 83: 0} == memory_by_process()
    nvml.is_broken = True
    assert {} == memory_by_process()
