"""Cost of stacks, flame graphs and traces on a training's steps while they are taken, and the time for stacks.

    python -m benchmarks.on_demand [--long] [--json FILE]

A loop of plain PyTorch trains in this process. In every second block of steps, a flame graph is recorded for the whole
block, as many steps are traced, or stacks are taken once a second. Of each block the median step counts, and the ratio
is the median of the ratios of neighbours; `most` is the longest step of a block. Before a trace, the rank looks for a
profiler of the script's own, and afterwards it writes the trace: the steps beside that work are timed apart. Then
ranks of one host that all hang in C code, with the interpreter's lock, are asked for their stacks: the time is the
host's, from the request to the answer.
"""

import os
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from tidepool.protocol import FlameAnswer, RecordingRequest, TraceAnswer
from tidepool.recordings.flame import record_flame
from tidepool.recordings.native import record_native_flame
from tidepool.recordings.trace import record_trace
from tidepool.stacks import STACKS_SIGNAL, answer_with_stacks
from torch import nn

from benchmarks.results import Result, arguments, result, show

_BATCH, _INPUTS, _WIDTH = 64, 256, 1200
_TRACED_STEPS, _STACKS_BLOCK_SECONDS = 20, 3.0
_HUNG_RANKS = 64

Record = Callable[[RecordingRequest, Path], FlameAnswer]


class Loop:
    """A training whose steps are timed."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        self._model = nn.Sequential(
            *(nn.Linear(_INPUTS, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, 10))
        )
        self._optimizer = torch.optim.Adam(self._model.parameters())
        self._inputs, self._labels = torch.randn(_BATCH, _INPUTS), torch.randint(10, (_BATCH,))

    def step(self) -> float:
        """Make a step, and return its seconds."""
        begun = time.perf_counter()
        self._optimizer.zero_grad()
        nn.functional.cross_entropy(self._model(self._inputs), self._labels).backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        return time.perf_counter() - begun

    def while_(self, goes_on: Callable[[int], bool]) -> list[float]:
        """Make steps as long as it goes on, by the number of those that were made. Return their seconds."""
        seconds: list[float] = []
        while goes_on(len(seconds)):
            seconds.append(self.step())
        return seconds


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    count = 15 if options.long else 7
    loop = Loop()
    loop.while_(lambda steps: steps < 50)
    with tempfile.TemporaryDirectory() as folder:
        found = _flame(loop, Path(folder), count, "flame graph", record_flame, 5)
        found += _flame(loop, Path(folder), count, "flame graph with functions of C", record_native_flame, 10)
        found += _trace(loop, Path(folder), count)
        found += _stacks(loop, Path(folder), count)
    show(found + _hung(count), options.json)


def _flame(loop: Loop, folder: Path, count: int, name: str, record: Record, amount: int) -> list[Result]:
    whole, alone = list[float](), list[float]()

    def recorded() -> list[float]:
        answers: list[FlameAnswer] = []
        request = RecordingRequest(1, "flame", "member", amount)
        with _beside(lambda: answers.append(record(request, folder))) as thread:
            steps = loop.while_(lambda _: thread.is_alive())
        assert answers[0].samples > 0, answers
        whole.append(sum(steps) / len(steps))
        return steps

    def plain() -> list[float]:
        steps = loop.while_(_for(amount))
        alone.append(sum(steps) / len(steps))
        return steps

    found = _compared(name, count, recorded, plain)
    return [*found, result(f"{name}: ratio of mean steps", "x", [statistics.median(whole) / statistics.median(alone)])]


def _trace(loop: Loop, folder: Path, count: int) -> list[Result]:
    beside, whole = list[float](), list[float]()

    def recorded() -> list[float]:
        answers: list[TraceAnswer] = []
        request = RecordingRequest(1, "trace", "member", _TRACED_STEPS)
        steps, profiled = list[float](), list[bool]()
        with _beside(lambda: answers.append(record_trace(request, folder))) as thread:
            while thread.is_alive():
                profiled.append(torch.autograd._profiler_enabled())
                steps.append(loop.step())
        assert answers[0].problem == "", answers
        traced = [seconds for seconds, is_traced in zip(steps, profiled, strict=True) if is_traced]
        beside.extend(seconds for seconds, is_traced in zip(steps, profiled, strict=True) if not is_traced)
        whole.append(sum(steps) / len(steps))
        return traced

    alone: list[float] = []

    def plain() -> list[float]:
        steps = loop.while_(lambda made: made < _TRACED_STEPS)
        alone.extend(steps)
        return steps

    found = _compared("trace", count, recorded, plain)
    ratio = statistics.median(beside) / statistics.median(alone)
    return [
        *found,
        result("before and after the traced steps: ratio", "x", [ratio]),
        result("the whole recording: ratio", "x", [statistics.median(whole) / statistics.median(alone)]),
    ]


def _stacks(loop: Loop, folder: Path, count: int) -> list[Result]:
    answer_with_stacks(folder)

    def taken() -> list[float]:
        is_over = threading.Event()

        def ask() -> None:
            while not is_over.wait(1.0):
                os.kill(os.getpid(), STACKS_SIGNAL)

        with _beside(ask):
            steps = loop.while_(_for(_STACKS_BLOCK_SECONDS))
            is_over.set()
        return steps

    found = _compared("stacks once a second", count, taken, lambda: loop.while_(_for(_STACKS_BLOCK_SECONDS)))
    signal.signal(STACKS_SIGNAL, signal.SIG_IGN)
    return found


def _hung(count: int) -> list[Result]:
    import json

    from tidepool.stacks import stacks_path

    from tests.runtime.process_tree import JobReconciler, running_forkserver
    from tests.runtime.test_stacks import IN_C_CODE, started, taken

    slots, seconds = list(range(_HUNG_RANKS)), []
    with running_forkserver() as (forkserver, _), tempfile.TemporaryDirectory(prefix="tide") as folder:
        job = JobReconciler(forkserver, Path(folder), IN_C_CODE)
        try:
            started(job, slots)
            for number in range(1, count + 1):
                ranks = taken(job, slots, number)
                assert {process.state for rank in ranks for process in rank.processes} == {"answered"}
                path = Path(job.spec.launch.folder) / stacks_path(job.spec.host)
                seconds.append(json.loads(path.read_text())["seconds"])
        finally:
            job.close()
    return [result(f"stacks of {_HUNG_RANKS} ranks that hang", "s", seconds)]


def _compared(
    name: str, count: int, recorded: Callable[[], list[float]], plain: Callable[[], list[float]]
) -> list[Result]:
    """Measure blocks with a recording and without it, in turns."""
    pairs = [(recorded(), plain()) for _ in range(count)]
    medians = [(statistics.median(mine), statistics.median(other)) for mine, other in pairs]
    return [
        result(f"{name}: a step", "ms", [1e3 * mine for mine, _ in medians]),
        result(f"{name}: a step without", "ms", [1e3 * other for _, other in medians]),
        result(f"{name}: ratio", "x", [mine / other for mine, other in medians]),
        result(f"{name}: longest step", "ms", [1e3 * max(mine) for mine, _ in pairs]),
        result(f"{name}: longest step without", "ms", [1e3 * max(other) for _, other in pairs]),
    ]


def _for(seconds: float) -> Callable[[int], bool]:
    ends = time.perf_counter() + seconds
    return lambda _: time.perf_counter() < ends


@contextmanager
def _beside(work: Callable[[], object]) -> Iterator[threading.Thread]:
    """Do the work in a thread beside the block, and wait for its end."""
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield thread
    finally:
        thread.join()


if __name__ == "__main__":
    main()
