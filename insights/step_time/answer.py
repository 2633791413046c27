"""The answer to why a training is slow, with the sentence on top."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from insights.step_time.advice import (
    BATCH,
    READS,
    SlowAdvice,
    advice_on,
    straggler_words,
)
from insights.step_time.batch_costs import fixed_computing
from insights.step_time.causes import causes_of, reason_of_straggler
from insights.step_time.core_limits import core_limit_words, cores_per_gpu
from insights.step_time.gpu_memory import MemoryAt, memory_points, memory_warning, memory_words
from insights.step_time.outcomes import AdviceOutcome, outcomes_of
from insights.step_time.process_use import ProcessesOverTime, RankUse, UseAt, process_use
from insights.step_time.shares import (
    RankShare,
    Shares,
    SharesAt,
    measured_ranks,
    recent_shares,
    share_points,
    shares_of,
    straggler_of,
)
from jobs.models import Job, TimeByCause
from jobs.states import TERMINAL
from workers.models import Host

__all__ = ["PART_WORDS", "WhySlow", "why_slow"]

#: Part -> its name on pages, and a clause that begins with the share.
PART_WORDS = {
    "compute": ("Compute", "computing"),
    "data": ("Data", "waiting for data"),
    "communication": ("Communication", "summing gradients"),
    "straggling": ("Stragglers", "waiting for the slowest rank"),
    "optimizer": ("Optimizer", "updating the weights"),
    "checkpoint": ("Checkpoints", "writing checkpoints"),
    "validation": ("Validation", "measuring on held-out data"),
    "resize": ("Resizes", "changing the number of GPUs or recovering"),
    "script": ("Script", "in the script, between its gradients and the next batch"),
}
#: Share from which a part is said to hold the training up.
_NOTABLE = 0.1


@dataclass(frozen=True)
class WhySlow:
    state: Annotated[Literal["measured", "waiting", "not_told_apart"], "waiting: no time is measured yet."]
    text: Annotated[str, "The largest cause, in one sentence."]
    seconds: Annotated[float, "Time of all ranks, added up."]
    shares: Annotated[Shares, "Part -> fraction of the time of all ranks, 0 to 1; they add up to 1."]
    recent: Annotated[Shares, "The same for the newest minute or more."]
    straggler: Annotated[int | None, "Rank that the others wait for; null: there is none."]
    ranks: Annotated[list[RankShare], "Ranks of the newest attempt."]
    points: Annotated[list[SharesAt], "Shares over time, the oldest first."]
    advice: Annotated[list[SlowAdvice], "Suggestions, the one that promises most first."]
    outcomes: Annotated[list[AdviceOutcome], "Results of the advice on the owner's training of the model before."]
    cores: Annotated[str, "Sentence on hosts where it uses up its limit of cores; empty: there is none."]
    memory: Annotated[str, "Sentence on how far the GPUs' memory is used."]
    memory_warning: Annotated[str, "Warning that the memory of a GPU is nearly full, or fills up; empty: neither."]
    memory_points: Annotated[list[MemoryAt], "Memory of the fullest GPU over time, the oldest first."]
    processes: Annotated[str, "Sentence on what its processes use of their hosts; empty: not known."]
    process_ranks: Annotated[list[RankUse], "Use by the processes of each rank in the newest minute."]
    process_points: Annotated[list[UseAt], "Use by all of its processes over time, the oldest first."]


def why_slow(job: Job) -> WhySlow:
    row = TimeByCause.objects.filter(job=job).select_related("job__profile").first()
    use = process_use(job)
    if row is None or not row.points or not (shares := shares_of(row.points[-1]["seconds"])):
        return _unmeasured(job, use)
    newest = row.points[-1]
    ranks, recent = measured_ranks(job, row), recent_shares(row.points)
    straggler = straggler_of(ranks, recent if job.state not in TERMINAL else None)
    course = memory_points(row.points)
    advice = advice_on(recent or shares, ranks, straggler, _cores(job, ranks), fixed_computing(job))
    return WhySlow(
        "measured",
        sentence_of(recent or shares, ranks, straggler, advice),
        round(sum(newest["seconds"]), 3),
        shares,
        recent,
        None if straggler is None else straggler.rank,
        ranks,
        share_points(row.points),
        advice,
        outcomes_of(job, row),
        core_limit_words(ranks),
        memory_words(ranks),
        memory_warning(course) if job.state not in TERMINAL else "",
        course,
        use.text,
        [*use.ranks],
        [*use.points],
    )


def _cores(job: Job, ranks: Sequence[RankShare]) -> float | None:
    """Return the smallest number of cores that a rank has with its GPU; None: a host does not tell."""
    names = {rank.host for rank in ranks if rank.rank is not None}
    cores = [cores_per_gpu(job, host) for host in Host.objects.filter(name__in=names)]
    known = [count for count in cores if count is not None]
    return min(known) if known and len(known) == len(names) else None


def _unmeasured(job: Job, use: ProcessesOverTime) -> WhySlow:
    state: Literal["waiting", "not_told_apart"] = "waiting"
    text = "No time is measured yet: the first figures come some seconds after the first step."
    if job.state in TERMINAL:
        text = "No time was measured: the training ended within seconds, or before time was measured by cause."
    if not job.elastic:
        state = "not_told_apart"
        text = "No steps of torch's optimizers are seen in this script, so its time is not told apart."
    if use.text:
        text = f"{use.text} {text}"
    of_processes = (use.text, [*use.ranks], [*use.points])
    return WhySlow(state, text, 0.0, {}, {}, None, [], [], [], [], "", "", "", [], *of_processes)


def sentence_of(
    shares: Shares, ranks: Sequence[RankShare], straggler: RankShare | None, advice: Sequence[SlowAdvice] = ()
) -> str:
    """Return "62 % of the time is spent waiting for data, 30 % computing."."""
    if advice and advice[0].code == BATCH:
        return f"{_percent(advice[0].fraction)} of the time does not depend on the size of the batch, which is small."
    if advice and advice[0].code == READS:
        place = max(ranks, key=lambda rank: rank.read_share).read_place
        return f"{_percent(advice[0].fraction)} of the time is spent waiting for numbers from the GPU{_in(place)}."
    told = causes_of(shares, ranks, straggler)
    computing = f"{_percent(told['compute'])} computing"
    others = {part: share for part, share in told.items() if part != "compute"}
    largest = max(others, key=lambda part: others[part])
    if others[largest] < _NOTABLE:
        return f"The ranks spend {computing}: no other part takes {_percent(_NOTABLE)} of the time."
    if largest == "straggling" and straggler is not None:
        words = straggler_words(straggler, reason_of_straggler(straggler, ranks))
        return f"{_percent(others[largest])} of the others' time is spent waiting for {words}."
    is_reason = straggler is None or largest == reason_of_straggler(straggler, ranks)
    waits = ", or waiting for a rank that this makes late" if is_reason and told[largest] > shares[largest] else ""
    return f"{_percent(told[largest])} of the time is spent {PART_WORDS[largest][1]}{waits}, {computing}."


def _in(place: str) -> str:
    return f" in {place}" if place else ""


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"
