"""Cost of measuring to a training's step: times of steps for everybody, and gradient noise where the batch may adapt.

    python -m benchmarks.goodput [--long] [--json FILE]

One process trains the same model three times, in blocks of steps that take turns: without a profiler, as every session
does, and adaptive with a batch that stays, so that nothing but the measuring differs. Figures are processor time. The
calls that measure are timed by themselves too: what they take is lost in the noise of whole steps. So is what gradient
noise costs a rank that is alone, which cuts a step in two for it: steps that are all cut are compared, and of what that
costs the part counts that `CUT_EACH` says, beside the calls that each step makes. Bars: 0.2 % for everybody, 2 % where
the batch may adapt.
"""

import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any
from unittest import mock

import torch
from tidepool.torch import Adaptive, Session
from tidepool.torch.adaptive.adaptation import Adaptation
from tidepool.torch.adaptive.gradient_noise import CUT_EACH, MEASURED_EACH, SquaredNorms
from tidepool.torch.adaptive.profiler import CompletedStep, Profiler, Shape
from tidepool.torch.state.training_state import Position
from torch import nn
from torch.utils.data import TensorDataset

from benchmarks.results import Result, arguments, result, show

#: Name -> width of its two square layers.
MODELS = {"1M": 700, "25M": 3500}
BATCH, SAMPLES = 256, 4096
STEPS = MEASURED_EACH


class Unmeasured(Profiler):
    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.watch = mock.NonCallableMock(start=_nothing, stop=_nothing, seconds=_nothing)

    def write(self, places: torch.Tensor) -> None:
        return

    def made(self, *_: Any, **__: Any) -> None:
        return

    def message(self, *_: Any) -> None:
        return


def _nothing() -> float:
    return 0.0


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    torch.set_num_threads(1)
    found: list[Result] = []
    for name in MODELS if options.long else ["1M"]:
        found += measure(name, MODELS[name], 60 if options.long else 24)
    show(found, options.json)


def measure(name: str, width: int, rounds: int) -> list[Result]:
    with mock.patch("tidepool.torch.rank.training_loop.Profiler", Unmeasured):
        plain = training(width, None)
    trainings = [plain, training(width, None), training(width, Adaptive(BATCH, rank_bounds=(1, BATCH)))]
    without, measured, adaptive = alternated(trainings, rounds)
    with mock.patch.multiple(SquaredNorms, is_ready=lambda *_: True, is_cut=lambda *_: True):
        uncut, _, cut = alternated(trainings, rounds)
    cutting, own = _shares(cut, uncut), adaptive_calls(trainings[-1], rounds)
    return [
        result(f"step, {name}, measured", "ms", measured, "not measured", without),
        result(f"step, {name}, adaptive", "ms", adaptive, "not measured", without),
        result(f"measuring, {name}", "%", _shares(measured, without)),
        result(f"measuring, {name}, its calls alone", "%", [100 * each / min(without) for each in calls(rounds)]),
        result(f"a step that is cut, {name}", "%", cutting),
        result(f"adaptive, {name}, its calls alone", "%", own),
        *(
            result(f"both, {name}, from step {begin:,} on", "%", [share / each + median(own) for share in cutting])
            for begin, each in CUT_EACH
        ),
    ]


def alternated(trainings: list[Iterator[None]], rounds: int) -> list[list[float]]:
    """Milliseconds of a step of each training, by blocks."""
    taken: list[list[float]] = [[] for _ in trainings]
    for one in trainings:
        block(one)
    for turn in range(rounds):
        for place in (0, 1, 2) if turn % 2 else (2, 1, 0):
            taken[place].append(1000 * block(trainings[place]))
    return taken


def calls(rounds: int) -> list[float]:
    """Milliseconds of processor time that a step's calls take, of the rank that reports."""
    profiler, control, count = Profiler(torch.device("cpu")), torch.zeros(2), 1000
    taken = []
    for _ in range(rounds):
        begun = time.process_time()
        for _ in range(count):
            profiler.message(Position(), time.monotonic())
            profiler.watch.start()
            profiler.watch.stop()
            profiler.write(control)
            profiler.made(CompletedStep(Shape(1, 1, BATCH), 1, 0.01, 1), (0.01, 1.0))
        taken.append(1000 * (time.process_time() - begun) / count)
    return taken


def adaptive_calls(steps: Iterator[None], rounds: int) -> list[float]:
    """Percent of its steps that an adaptive training spends in what others do not call, where none is cut."""
    spent = [0.0]

    def timed(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **keywords: Any) -> Any:
            begun = time.process_time()
            try:
                return call(*args, **keywords)
            finally:
                spent[0] += time.process_time() - begun

        return wrapped

    names = ("largest", "begin", "choose", "back_propagated", "write", "measure", "advance")
    found = []
    with (
        mock.patch.multiple(Adaptation, **{name: timed(getattr(Adaptation, name)) for name in names}),
        mock.patch.object(SquaredNorms, "is_cut", return_value=False),
    ):
        for _ in range(rounds):
            spent[0] = 0.0
            seconds = STEPS * block(steps)
            found.append(100 * spent[0] / seconds)
    return found


def _shares(column: list[float], without: list[float]) -> list[float]:
    return [100 * (each / other - 1) for each, other in zip(column, without, strict=True)]


def training(width: int, adaptive: Adaptive | None) -> Iterator[None]:
    """Each turn makes a step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width))
    optimizer = torch.optim.Adam(model.parameters())
    samples = TensorDataset(torch.randn(SAMPLES, width), torch.randn(SAMPLES, width))
    session = Session(model, optimizer, effective_batch_size=BATCH, adaptive=adaptive)

    def steps() -> Iterator[None]:
        for _ in session.epochs(1_000_000):
            for step in session.steps(samples):
                for inputs, wanted in step:
                    step.backward(nn.functional.mse_loss(model(inputs), wanted))
                yield

    return steps()


def block(steps: Iterator[None]) -> float:
    """Processor seconds of a step."""
    begun = time.process_time()
    for _ in range(STEPS):
        next(steps)
    return (time.process_time() - begun) / STEPS


if __name__ == "__main__":
    main()
