"""Cost of counting a step's time by cause: blocks of steps with the rank's clock, and without it, in turns.

    python -m benchmarks.time_by_cause [--long] [--json FILE]

A session off the cluster on one rank, in this process: blocks of steps take turns. In every second block the clock does
not run, so that it does what it does before a rank has joined: nothing. Of each block the fastest step counts, and the
ratio is the median of the ratios of neighbours. The clock's calls alone are timed as well: their seconds in a step are
exact where the ratio is lost in the noise of a busy machine.
"""

import statistics
import time
from collections.abc import Iterator

import torch
from tidepool.torch import Session
from tidepool.torch.rank.step_clock import StepClock, TimePart
from torch import nn
from torch.utils.data import TensorDataset

from benchmarks.results import arguments, result, show

_BATCH, _INPUTS, _WIDTH = 64, 256, 850
_BLOCK_STEPS = 20
#: Changes of the part under way in a step of one micro-batch, as `Session` makes them, and beginning and end of a sum.
_CHANGES = 14


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    with_clock, without = blocks(120 if options.long else 40)
    ratios = [mine / other for mine, other in zip(with_clock, without, strict=True)]
    calls = [_CHANGES * seconds_of_a_change() * 1e6 for _ in range(20)]
    step = statistics.median(without)
    show(
        [
            result("a step whose time is counted by cause", "ms", [seconds * 1e3 for seconds in with_clock]),
            result("a step without the clock", "ms", [seconds * 1e3 for seconds in without]),
            result("ratio of neighbouring blocks", "x", ratios),
            result("calls of the clock in a step", "µs", calls),
            result("their part of a step", "%", [each / 1e4 / step for each in calls]),
        ],
        options.json,
    )


def blocks(count: int) -> tuple[list[float], list[float]]:
    """Return the fastest step of each block, in seconds: with the clock, and without it."""
    fastest: dict[bool, list[float]] = {True: [], False: []}
    for number, seconds in enumerate(steps_by_block(2 * count + 2)):
        if number > 1:  # the first ones build caches
            fastest[number % 2 == 0].append(seconds)
    return fastest[True], fastest[False]


def steps_by_block(count: int) -> Iterator[float]:
    """Train, and yield the fastest step of each block. In blocks of odd numbers the clock does not run."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(_INPUTS, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, _WIDTH), nn.Linear(_WIDTH, 10))
    samples = TensorDataset(torch.randn(_BATCH * _BLOCK_STEPS, _INPUTS), torch.randint(10, (_BATCH * _BLOCK_STEPS,)))
    session = Session(model, torch.optim.Adam(model.parameters()), effective_batch_size=_BATCH)
    clock = session._training_loop.clock
    for block in session.epochs(count):
        clock.begin() if block % 2 == 0 else clock.end()
        seconds, begun = [], time.perf_counter()
        for step in session.steps(samples):
            for inputs, labels in step:
                step.backward(nn.functional.cross_entropy(model(inputs), labels))
            now = time.perf_counter()
            seconds.append(now - begun)
            begun = now
        yield min(seconds[1:])


def seconds_of_a_change() -> float:
    """Return the mean seconds in which another part is set under way and the former one again, by a context."""
    clock = StepClock()
    clock.begin()
    count = 20_000
    begun = time.perf_counter()
    for _ in range(count):
        with clock.during(TimePart.DATA):
            pass
    return (time.perf_counter() - begun) / count / 2


if __name__ == "__main__":
    main()
