"""Averages that a right simulator reproduces: published ones, of policies that need no tuning of ours."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

from benchmarks.baselines import Optimus, Tiresias
from benchmarks.trace_files import GPUS_PER_HOST, HOSTS, Submission, trace
from scheduling.replay.physics import Physics, fixed_batch
from scheduling.replay.profiles import Batch
from scheduling.replay.rounds import Decide, Entry, play_rounds

__all__ = ["ANCHORS", "BASELINES", "PUBLISHED", "Anchor", "average", "check", "played"]

BASELINES: dict[str, Callable[[int, int], Decide]] = {"tiresias": Tiresias, "optimus": Optimus}
#: Average seconds by the artifact of the Pollux paper, in rounds of 60 s, with 30 s for a change. Pollux tunes batches.
PUBLISHED: dict[str, dict[str, float]] = {
    "tiresias": {"workload-6": 3469.69375, "workload-1": 2474, "workload-3": 3876},
    "optimus": {"workload-6": 5301.875, "workload-1": 4087, "workload-3": 3944},
    "pollux": {"workload-1": 2089, "workload-2": 3323, "workload-3": 2188, "workload-4": 2721, "workload-6": 2446},
}


@dataclass(frozen=True)
class Anchor:
    policy: str
    trace: str
    seconds: float
    #: To so many the average was published.
    digits: int


ANCHORS = tuple(
    Anchor(policy, name, seconds, 5 if seconds % 1 else 0)
    for policy in BASELINES
    for name, seconds in PUBLISHED[policy].items()
)


def average(anchor: Anchor) -> float:
    return fmean(entry.completion_seconds for entry in played(anchor.policy, anchor.trace))


def played(policy: str, name: str, load: float = 1.0) -> list[Entry]:
    entries = [_entry(number, submission) for number, submission in enumerate(trace(name, load))]
    play_rounds(entries, BASELINES[policy](HOSTS, GPUS_PER_HOST))
    return entries


def _entry(number: int, submission: Submission) -> Entry:
    def batch_as_asked(physics: Physics) -> Batch:
        return fixed_batch(physics.application, submission.batch, physics.ranks)

    physics = Physics(submission.application, batch_as_asked)
    return Entry(number, submission.at, submission.gpus, submission.batch, physics)


def check() -> None:
    """RuntimeError where one of the averages is off."""
    for anchor in ANCHORS:
        found = average(anchor)
        if round(found, anchor.digits) != anchor.seconds:
            raise RuntimeError(
                f"The simulator is off: {anchor.policy} on {anchor.trace} comes to {found} s on average, published is "
                f"{anchor.seconds} s. Believe no figure of it before this is found."
            )
