"""GPU time of a loop of a script's own, by events that are made up."""

from typing import Any

import pytest
import torch
from tidepool.protocol import SPENT_PARTS
from tidepool.torch.rank.gpu_times import GpuTimes
from tidepool.torch.rank.plain_clock import _PlainLoop
from tidepool.torch.rank.step_clock import StepClock


class Gpu:
    """A GPU that computes what it is told, one after the other, and the clock of its host. Times are seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        #: Time at which all that it has been told will be done.
        self.free_at = 0.0
        self.events = 0

    def compute(self, seconds: float) -> None:
        self.free_at = max(self.free_at, self.now) + seconds

    def make_event(self, **_: Any) -> "Event":
        self.events += 1
        return Event(self)


class Event:
    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self.at = 0.0

    def record(self) -> None:
        self.at = max(self._gpu.now, self._gpu.free_at)

    def query(self) -> bool:
        return self._gpu.now >= self.at

    def elapsed_time(self, other: "Event") -> float:
        return 1000.0 * (other.at - self.at)


@pytest.fixture
def gpu() -> Gpu:
    return Gpu()


def test_a_span_counts_once_the_gpu_has_come_to_its_end(gpu: Gpu) -> None:
    times = GpuTimes(gpu.make_event)
    times.begin()
    gpu.compute(2.0)
    times.end()
    assert times.take() == 0.0
    gpu.now = 2.0
    assert times.take() == 2.0
    assert times.take() == 0.0


def test_a_span_without_a_beginning_or_an_end_is_none(gpu: Gpu) -> None:
    times = GpuTimes(gpu.make_event)
    times.end()
    times.begin()
    gpu.compute(1.0)
    times.begin()
    gpu.compute(0.5)
    times.end()
    gpu.now = 9.0
    assert times.take() == 0.5


def test_a_host_far_ahead_keeps_few_events(gpu: Gpu) -> None:
    times = GpuTimes(gpu.make_event)
    for _ in range(1000):
        times.begin()
        gpu.compute(0.1)
        times.end()
    assert gpu.events <= 130
    gpu.now = gpu.free_at
    assert times.take() == pytest.approx(6.4)
    times.begin()
    gpu.compute(0.1)
    times.end()
    gpu.now = gpu.free_at
    assert times.take() == pytest.approx(0.1)
    assert gpu.events <= 130


def test_what_a_plain_script_waits_for_its_gpu_is_computing(gpu: Gpu) -> None:
    """Each step: 0.1 s for data, 0.02 s until backward is handed over, and item() until the GPU is done after 0.5 s."""
    clock = StepClock(lambda: gpu.now, lambda: gpu.now)
    loop = _PlainLoop(clock, lambda: False)
    loop._gpu = GpuTimes(gpu.make_event)
    clock.begin()

    def pass_time(seconds: float) -> None:
        gpu.now += seconds

    class Batches:
        _num_workers = 0

    parameter = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([parameter])
    read = loop.reading_data(lambda iterator: pass_time(0.1))

    def hand_over() -> None:
        gpu.compute(0.5)
        pass_time(0.02)

    backward = loop.computing(hand_over)
    for _ in range(10):
        read(Batches())
        backward()
        loop.before_update()
        pass_time(0.01)
        loop.after_update(optimizer)
        gpu.now = max(gpu.now, gpu.free_at)  # item()
        pass_time(0.03)
    found = clock.reading()
    assert found is not None
    shares = dict(zip(SPENT_PARTS, (seconds / sum(found.seconds) for seconds in found.seconds), strict=True))
    step = 0.1 + 0.5 + 0.03
    assert shares["data"] == pytest.approx(0.1 / step, abs=0.02)
    # The last step's time is told with the next one.
    assert shares["compute"] == pytest.approx(0.9 * 0.5 / step, abs=0.02)
    assert found.signs.gpu_seconds == pytest.approx(9 * 0.5, abs=0.1)
