"""Cost of a checkpoint to the training: the stall of its step, and the time that writing adds to the next steps.

    python -m benchmarks.checkpoints [--long] [--json FILE]

In one process a model trains in blocks of steps, in turn without a checkpoint, with one whose state is copied at a step
boundary, and with one whose state is copied behind the first step, as trainings do it within an epoch. The stall is
what the training thread waits for at that boundary and before that step's update; it is compared with one plain copy of
the same tensors in memory, made in the same round. The cost of a checkpoint is the time that its block took longer than
the one without; amortised, it is that time over the default period.
"""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from tidepool.protocol import CHECKPOINT_SECONDS, LaunchSpec, MemberMessage
from tidepool.torch.rank.checkpointer import Checkpointer, CheckpointPolicy
from tidepool.torch.rank.transitions import Transitions
from tidepool.torch.state.training_state import Position, TrainingState
from torch import nn

from benchmarks.results import Result, arguments, result, show

#: Name -> width of its two square layers.
MODELS = {"1M": 700, "25M": 3500}
SETTLE_STEPS = 3
BATCH = 32


@dataclass
class Rank:
    """A rank that trains alone, as far as a Checkpointer needs it."""

    launch: LaunchSpec
    state: TrainingState
    member_id: str = "a.0.1"
    checkpointed_at: float = 0.0
    exposed: bool = False
    settle_copy: Callable[[], None] = lambda: None
    said: list[MemberMessage] = field(default_factory=list)

    @property
    def group(self) -> Any:
        return type("Group", (), {"generation": 1})

    def send(self, said: MemberMessage) -> None:
        self.said.append(said)


@dataclass
class Way:
    """Seconds of one way to make a checkpoint."""

    #: Whether the step's update waits for the copy, and its computation does not.
    behind: bool
    stalls: list[float] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    torch.set_num_threads(1)
    rounds = 40 if options.long else 10
    found: list[Result] = []
    for name, width in MODELS.items():
        with tempfile.TemporaryDirectory(prefix="tide") as folder:
            found += measure(name, width, rounds, Path(folder))
    show(found, options.json)


def measure(name: str, width: int, rounds: int, folder: Path) -> list[Result]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width))
    state = TrainingState(model, {"0": torch.optim.Adam(model.parameters())}, {}, Position())
    launch = LaunchSpec(str(folder), "", "", [], "", {}, [], 1, 1, None, 0, "sum")
    rank = Rank(launch, state)
    checkpointer = Checkpointer(cast(Transitions, rank), CheckpointPolicy(seconds=0.0, every_epochs=1))
    inputs = torch.randn(BATCH, width)
    train(state, inputs, 3)
    checkpoint(checkpointer, state)  # makes room for the copies
    checkpointer.finish()
    checkpointer.confirm()
    steps = max(5, round(1.5 / train(state, inputs, 3)))
    copies = [tensor.clone() for tensor in state.pack()[1]]
    ways, plain = {"at once": Way(False), "behind the step": Way(True)}, []
    for _ in range(rounds):
        without = train(state, inputs, steps) * steps
        begun = time.perf_counter()
        for copy, tensor in zip(copies, state.pack()[1], strict=True):
            copy.copy_(tensor)
        plain.append(time.perf_counter() - begun)
        for way in ways.values():
            train(state, inputs, SETTLE_STEPS)  # all copies are made of what a step has just written
            begun = time.perf_counter()
            checkpoint(checkpointer, state, behind=way.behind)
            stall = time.perf_counter() - begun
            stall += train_one(state, inputs, rank.settle_copy)
            way.stalls.append(stall)
            way.costs.append(time.perf_counter() - begun + train(state, inputs, steps - 1) * (steps - 1) - without)
            checkpointer.finish()
            checkpointer.confirm()
    assert len(rank.said) == 2 * rounds + 1, "each was written"
    megabytes = sum(copy.numel() * copy.element_size() for copy in copies) / 1e6
    found = [result(f"one copy in memory, {name} ({megabytes:.0f} MB)", "ms", in_ms(plain))]
    for words, way in ways.items():
        shares = [100 * max(0.0, cost) / CHECKPOINT_SECONDS for cost in way.costs]
        found.append(result(f"stall, {name}, {words}", "ms", in_ms(way.stalls), "one copy in memory", in_ms(plain)))
        found.append(result(f"added to step time, {name}, {words}", "%", shares))
    return found


def in_ms(seconds: list[float]) -> list[float]:
    return [1000 * each for each in seconds]


def train(state: TrainingState, inputs: torch.Tensor, steps: int) -> float:
    """Seconds per step."""
    begun = time.perf_counter()
    for _ in range(steps):
        train_one(state, inputs, lambda: None)
    return (time.perf_counter() - begun) / max(1, steps)


def train_one(state: TrainingState, inputs: torch.Tensor, settle: Callable[[], None]) -> float:
    """Make a step; return the seconds for which its update waited."""
    [optimizer] = state.optimizers.values()
    optimizer.zero_grad()
    state.model(inputs).square().mean().backward()
    begun = time.perf_counter()
    settle()
    waited = time.perf_counter() - begun
    optimizer.step()
    state.position.step += 1
    return waited


def checkpoint(checkpointer: Checkpointer, state: TrainingState, *, behind: bool = False) -> None:
    state.position.epoch += 1
    checkpointer.offer(epoch_is_over=not behind, is_wanted=behind)


if __name__ == "__main__":
    main()
