"""How long a training still takes, told by its own steps. Pure: times are Unix seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from jobs.messages import gpus

__all__ = ["LEAST_STEPS", "Change", "Eta", "StepTime", "eta"]

#: Fewer tell too little: the first ones wait for data, compilers and other ranks.
LEAST_STEPS = 10
_LEAST_SECONDS = 2.0
_PARTS = 4


@dataclass(frozen=True)
class StepTime:
    step: int
    at: float


@dataclass(frozen=True)
class Change:
    """From `at` on it had `slots`."""

    at: float
    slots: int


@dataclass(frozen=True)
class Eta:
    #: Seconds from the newest step on; None where nobody can tell.
    earliest: float | None
    latest: float | None
    #: Why nobody can, or what the range rests on.
    text: str


def eta(steps: Sequence[StepTime], changes: Sequence[Change], progress: float | None, *, counted: str = "steps") -> Eta:
    """From the newest steps, in order of time, on as many GPUs as now; else from those before the last change.

    After a change of size its speed lies between unchanged and in proportion to the GPUs.
    counted: what a report of how far it is stands for.
    """
    too_few = Eta(None, None, f"no estimate before {LEAST_STEPS} {counted}")
    if progress is None:
        return Eta(None, None, "no estimate: its script does not say how far it is")
    if not changes or not changes[-1].slots:
        return Eta(None, None, "no estimate while it does not train")
    if progress <= 0:
        return too_few
    now = changes[-1]
    here = _rates([step for step in steps if step.at > now.at])
    if here is not None:
        return _range(steps, progress, *here, f"at its speed on {gpus(now.slots)}")
    before = next((change for change in reversed(changes[:-1]) if change.slots), None)
    since = before.at if before else now.at
    former = _rates([step for step in steps if since < step.at <= now.at])
    if before is None or former is None:
        return too_few
    in_proportion = now.slots / before.slots
    text = f"from its speed on {gpus(before.slots)}, until {gpus(now.slots)} have done {LEAST_STEPS} steps"
    return _range(steps, progress, former[0] * min(1.0, in_proportion), former[1] * max(1.0, in_proportion), text)


def _range(steps: Sequence[StepTime], progress: float, slowest: float, fastest: float, text: str) -> Eta:
    left = steps[-1].step * (1 - progress) / progress
    return Eta(left / fastest, left / slowest, text)


def _rates(steps: Sequence[StepTime]) -> tuple[float, float] | None:
    """(slowest, fastest) steps per second among the parts of these steps; None if they tell too little."""
    if len(steps) < LEAST_STEPS or steps[-1].at - steps[0].at < _LEAST_SECONDS:
        return None
    cuts = [round(part * (len(steps) - 1) / _PARTS) for part in range(_PARTS + 1)]
    spans = [(steps[start], steps[end]) for start, end in pairwise(cuts)]
    rates = [(end.step - start.step) / (end.at - start.at) for start, end in spans if end.at > start.at]
    rates = [rate for rate in rates if rate > 0]
    return (min(rates), max(rates)) if rates else None
