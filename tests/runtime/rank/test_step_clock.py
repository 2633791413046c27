"""The clock of a rank's steps: one part at a time, and sums that add up."""

from contextlib import suppress
from typing import Any

import torch
from tidepool.protocol import SPENT_PARTS
from tidepool.torch.data import Feed, Reading
from tidepool.torch.rank.step_clock import StepClock, TimePart
from tidepool.torch.state.randomness import Generators
from torch.utils.data import TensorDataset


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Watch:
    def __init__(self, seconds: float, *, is_gpu: bool) -> None:
        self.is_gpu, self._seconds = is_gpu, seconds

    def seconds(self) -> float:
        return self._seconds


def sums(clock: StepClock) -> dict[str, float]:
    reading = clock.reading()
    assert reading is not None
    return {part: seconds for part, seconds in zip(SPENT_PARTS, reading.seconds, strict=True) if seconds}


def finish(clock: StepClock, time: Time, seconds: float, watch: Watch, operation: int = 0) -> None:
    class Reducer:
        bytes = 4096

        def finish(self) -> None:
            time.now += seconds

    reducer: Any = Reducer()
    clock.finish_sum(reducer, watch, operation)  # type: ignore[arg-type]


def test_nothing_counts_before_the_rank_has_joined() -> None:
    clock = StepClock(time := Time())
    clock.enter(TimePart.DATA)
    time.now += 5
    assert clock.reading() is None
    clock.begin()
    time.now += 2
    assert sums(clock) == {"script": 2}


def test_parts_within_parts_add_up() -> None:
    clock = StepClock(time := Time())
    clock.begin()
    with clock.during(TimePart.RESIZE):
        time.now += 1
        with clock.during(TimePart.DATA):
            time.now += 3
        time.now += 1
    with suppress(ValueError), clock.during(TimePart.CHECKPOINT):
        time.now += 4
        raise ValueError
    time.now += 0.5
    assert sums(clock) == {"resize": 2, "data": 3, "checkpoint": 4, "script": 0.5}
    clock.end()
    assert clock.reading() is None


def test_the_wait_for_an_own_gpu_counts_as_computing() -> None:
    clock = StepClock(time := Time())
    clock.begin()
    clock.enter(TimePart.COMPUTE)
    time.now += 1  # the host has launched everything
    clock.enter(TimePart.SCRIPT)
    finish(clock, time, 5, Watch(4.0, is_gpu=True))
    reading = clock.reading()
    assert reading is not None
    assert reading.waits == [(0, 2.0)]
    assert sums(clock) == {"compute": 4, "communication": 2}


def test_on_a_processor_the_wait_for_the_sum_is_communication() -> None:
    clock = StepClock(time := Time())
    clock.begin()
    finish(clock, time, 5, Watch(4.0, is_gpu=False))
    assert sums(clock) == {"communication": 5}


def test_data_that_is_awaited_while_the_sums_are_made_is_no_communication() -> None:
    clock = StepClock(time := Time())
    clock.begin()

    class Reducer:
        bytes = 4096

        def finish(self) -> None:
            with clock.during(TimePart.DATA):
                time.now += 3
            time.now += 2

    reducer: Any = Reducer()
    clock.finish_sum(reducer, Watch(0.0, is_gpu=False), 0)  # type: ignore[arg-type]
    reading = clock.reading()
    assert reading is not None
    assert reading.waits == [(0, 2.0)]
    assert sums(clock) == {"data": 3, "communication": 2}


def test_of_quick_steps_fewer_waits_are_told_by_all_ranks_the_same_ones() -> None:
    clock = StepClock(time := Time())
    clock.begin()
    told: list[int] = []
    for operation in range(256):
        finish(clock, time, 0.001, Watch(0.0, is_gpu=False), operation)
        if operation % 64 == 63:
            reading = clock.reading()
            assert reading is not None
            told += [number for number, _ in reading.waits]
            assert len(reading.waits) <= 32
    assert all(number % 2 == 0 for number in told if number >= 64)
    assert all(number % 4 == 0 for number in told if number >= 128)


def test_a_reading_has_the_workers_of_the_loader_once_it_is_open() -> None:
    clock = StepClock(Time())
    clock.begin()
    before = clock.reading()
    clock.open_feed(Feed(TensorDataset(torch.zeros(4)), None, 0, Reading(), Generators(torch.device("cpu"))))
    after = clock.reading()
    assert before is not None
    assert after is not None
    assert (before.workers, after.workers) == (None, 0)


def test_processor_time_counts_while_the_rank_reads_data_itself() -> None:
    cpu = Time()
    clock = StepClock(time := Time(), cpu)
    clock.begin()
    cpu.now += 5
    with clock.during(TimePart.DATA):
        time.now, cpu.now = time.now + 4, cpu.now + 1
        with clock.during(TimePart.DATA):
            time.now, cpu.now = time.now + 4, cpu.now + 2
    cpu.now += 5
    reading = clock.reading()
    assert reading is not None
    assert (sums(clock), reading.signs.data_cpu_seconds) == ({"data": 8}, 3)
    clock.workers = 2
    reading = clock.reading()
    assert reading is not None
    assert reading.signs.data_cpu_seconds is None


def test_a_gpus_computing_and_the_size_of_a_sum_are_signs() -> None:
    clock = StepClock(time := Time())
    clock.begin()
    for operation in range(2):
        finish(clock, time, 1.0, Watch(0.75, is_gpu=True), operation)
    reading = clock.reading()
    assert reading is not None
    assert (reading.signs.gpu_seconds, reading.signs.sum_bytes, reading.signs.gpu_memory) == (1.5, 4096, None)
