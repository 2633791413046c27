"""Results of advice: how fast the next training of a model is, after an earlier one was advised."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from insights.step_time.advice import SlowAdvice, advice_on
from insights.step_time.shares import Shares, measured_ranks, shares_of, straggler_of
from jobs.models import Job, TimeByCause

__all__ = ["AdviceOutcome", "Pace", "outcomes_of", "pace_of"]

#: Seconds that a training's pace is measured over at least, and fraction by which numbers of ranks may differ.
_LEAST_SECONDS = 10.0
_SAME_RANKS = 0.15
#: Number of earlier trainings among which the newest comparable one is looked for.
_MOST_EARLIER = 5
_PARTS = {
    "CHECKPOINTS": "checkpoint",
    "DATA": "data",
    "STRAGGLER": "straggling",
    "COMMUNICATION": "communication",
    "SCRIPT": "script",
    "VALIDATION": "validation",
}


class Pace(NamedTuple):
    """Mean pace of a training, and its mean number of ranks."""

    samples_per_second: float
    ranks: float


@dataclass(frozen=True)
class AdviceOutcome:
    job: Annotated[int, "Id of the earlier training that was advised."]
    code: str
    expected: Annotated[float, "Bound of the speedup that the advice named."]
    speedup: Annotated[float, "Samples per second of this training over the earlier one's."]
    share_before: Annotated[float, "Fraction of the earlier training's time that the advice was about, 0 to 1."]
    share_after: Annotated[float, "The same part's fraction of this training's time."]
    text: str


def outcomes_of(job: Job, row: TimeByCause) -> list[AdviceOutcome]:
    """Return what has come of the advice on the owner's training of the model before this one.

    Only trainings on as many ranks are compared.
    """
    pace = _pace(row)
    if pace is None:
        return []
    same = TimeByCause.objects.filter(job__owner=job.owner_id, job__model__model=job.model.model_id, job__lt=job.pk)
    for earlier in same.select_related("job__run", "job__profile").order_by("-job")[:_MOST_EARLIER]:
        before = _pace(earlier)
        if before is not None and abs(before.ranks - pace.ranks) <= _SAME_RANKS * pace.ranks:
            ranks = measured_ranks(earlier.job, earlier)
            advice = advice_on(shares_of(earlier.points[-1]["seconds"]), ranks, straggler_of(ranks))
            return compared(earlier.job_id, advice, pace.samples_per_second / before.samples_per_second, _shares(row))
    return []


def compared(job: int, advice: Sequence[SlowAdvice], speedup: float, shares: Shares) -> list[AdviceOutcome]:
    """Return the outcome of each advice. job: id of the training that was advised; shares: of the later one."""
    return [_outcome(job, one, speedup, shares.get(_PARTS[one.code], 0.0)) for one in advice]


def _outcome(job: int, advice: SlowAdvice, speedup: float, after: float) -> AdviceOutcome:
    part = _PARTS[advice.code]
    text = (
        f"Training {job} was advised about {part} ({advice.fraction * 100:.0f} % of its time, up to"
        f" {advice.speedup:.2g} times as fast). Now {part} takes {after * 100:.0f} %, and this training makes"
        f" {speedup:.2g} times as many samples per second."
    )
    return AdviceOutcome(job, advice.code, advice.speedup, round(speedup, 2), advice.fraction, round(after, 4), text)


def _shares(row: TimeByCause) -> dict[str, float]:
    return shares_of(row.points[-1]["seconds"])


def _pace(row: TimeByCause) -> Pace | None:
    profile = getattr(row.job, "profile", None)
    return None if profile is None else pace_of(row.points, profile.batch_size)


def pace_of(points: Sequence[Mapping[str, Any]], batch_size: int) -> Pace | None:
    """Return the pace from the first point to the newest; None: too short to tell, or it began again from behind.

    batch_size: samples of a step over all ranks.
    """
    if len(points) < 2:
        return None
    first, newest = points[0], points[-1]
    seconds, steps = newest["at"] - first["at"], newest["step"] - first["step"]
    spent = sum(newest["seconds"]) - sum(first["seconds"])
    if seconds < _LEAST_SECONDS or steps <= 0 or spent <= 0:
        return None
    return Pace(steps * batch_size / seconds, spent / seconds)
