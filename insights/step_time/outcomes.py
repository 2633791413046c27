"""Results of advice: how fast the next training of a model is, after an earlier one was advised."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, NamedTuple

from insights.step_time.advice import BATCH, READS, SlowAdvice, advice_on, batch_share, read_share
from insights.step_time.batch_costs import fixed_computing
from insights.step_time.causes import causes_of
from insights.step_time.shares import measured_ranks, shares_of, straggler_of
from jobs.models import Job, TimeByCause

__all__ = ["AdviceOutcome", "Pace", "outcomes_of", "pace_of"]

#: Seconds that a training's pace is measured over at least, and fraction by which numbers of ranks may differ.
_LEAST_SECONDS = 10.0
#: Fraction of the time between two points that all ranks together spend at least, if they train.
_TRAINED = 0.5
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
    "OPTIMIZER": "optimizer",
    BATCH: "what each batch takes, however small",
    READS: "reads of tensors on a GPU",
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
    share_after: Annotated[float | None, "The same part's fraction of this training's time; null: not known."]
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
            shares, fixed = shares_of(earlier.points[-1]["seconds"]), fixed_computing(earlier.job)
            advice = advice_on(shares, ranks, straggler_of(ranks), fixed_computing=fixed)
            speedup = pace.samples_per_second / before.samples_per_second
            return [_outcome(earlier.job_id, one, speedup, _share_of(one.code, job, row)) for one in advice]
    return []


def _share_of(code: str, job: Job, row: TimeByCause) -> float | None:
    """Return the fraction of a training's time that advice of this code is about; None: not known."""
    ranks = measured_ranks(job, row)
    causes = causes_of(shares_of(row.points[-1]["seconds"]), ranks, straggler_of(ranks))
    if code == READS:
        return read_share(ranks)
    if code == BATCH:
        fixed = fixed_computing(job)
        return None if fixed is None else batch_share(causes, fixed, ranks)
    return causes.get(_PARTS[code], 0.0)


def _outcome(job: int, advice: SlowAdvice, speedup: float, after: float | None) -> AdviceOutcome:
    part = _PARTS[advice.code]
    now = "" if after is None else f"Now {part} takes {after * 100:.0f} %, and t"
    text = (
        f"Training {job} was advised about {part} ({advice.fraction * 100:.0f} % of its time, up to"
        f" {advice.speedup:.2g} times as fast). {now or 'T'}his training makes {speedup:.2g} times as many samples per"
        " second."
    )
    share = None if after is None else round(after, 4)
    return AdviceOutcome(job, advice.code, advice.speedup, round(speedup, 2), advice.fraction, share, text)


def _pace(row: TimeByCause) -> Pace | None:
    profile = getattr(row.job, "profile", None)
    return None if profile is None else pace_of(row.points, profile.batch_size)


def pace_of(points: Sequence[Mapping[str, Any]], batch_size: int) -> Pace | None:
    """Return the pace while ranks trained; None: too short to tell, or it began again from behind.

    points: with the time of all ranks, added up. Between two points where it grows little, the training was suspended
    or waited. batch_size: samples of a step over all ranks.
    """
    seconds, steps, spent = 0.0, 0, 0.0
    for before, after in pairwise(points):
        passed, trained = after["at"] - before["at"], sum(after["seconds"]) - sum(before["seconds"])
        if trained >= _TRAINED * passed > 0:
            seconds, spent = seconds + passed, spent + trained
            steps += after["step"] - before["step"]
    if seconds < _LEAST_SECONDS or steps <= 0:
        return None
    return Pace(steps * batch_size / seconds, spent / seconds)
