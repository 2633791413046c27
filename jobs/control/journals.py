"""Storage of journal entries: exactly once, even if reports are lost or repeated. Called by `jobs.control.reports`.

Metric rows are for charts: the `metrics.jsonl` in the job's folder is authoritative.
"""

import logging
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import count, groupby, takewhile
from operator import attrgetter
from types import NoneType
from typing import Any, NamedTuple, TypeVar

from django.db import transaction
from django.utils import timezone
from msgspec import structs
from tidepool import protocol
from tidepool.protocol import (
    LINGER_SECONDS,
    JournalEntry,
    ObservedStep,
    ProtocolError,
    RecordedStep,
    Report,
    StepRecord,
    from_json,
)
from tidepool.rank_exits import error_words

from core import live
from core.time import iso
from jobs.control import checkpoints, generations, speed_profiles
from jobs.control.attempt_begins import tell_begin
from jobs.control.dead_letters import PASSES, end_job, has_had_its_tries, set_aside
from jobs.control.generations import close_generations
from jobs.control.job_end import end_halt, judge_job
from jobs.control.lifecycle import open_claims, resize
from jobs.control.observed_curves import forget_logs, observed_columns, observed_points, take_pattern
from jobs.control.outcome import ENVIRONMENT_FAILED, reason_of, too_large
from jobs.control.report_authorization import AttemptKey, JournalName, Place, misplaced, parse_name, places_of
from jobs.control.software import store_software
from jobs.control.transition import Why, change, lock_job, record
from jobs.files.validation_runs import validation_of
from jobs.messages import message
from jobs.models import Job, Journal, MetricPoint
from jobs.states import TRAINING, RankState, Reason
from jobs.topics import job_topic
from workers.models import Slot

__all__ = ["store_entries", "store_read_again", "store_steps"]

logger = logging.getLogger(__name__)

Step = TypeVar("Step", StepRecord, RecordedStep, ObservedStep)

#: Fields of a step's record that are not metrics.
_FIXED_KEYS = frozenset(StepRecord.__struct_fields__)
_MAX_METRIC_NAME_LENGTH = 64
_MAX_METRICS_PER_STEP = 100
#: Largest number of points in one live event.
_POINTS_AT_ONCE = 500


def store_entries(report: Report) -> dict[str, int]:
    """Store the new entries of the report and judge their jobs.

    Returns the numbers to acknowledge for journals that are unknown or belong to another host, and so are dropped.
    """
    journals: dict[str, list[JournalEntry]] = defaultdict(list)
    for entry in report.entries:
        journals[entry.journal].append(entry)
    names = [name for text in journals if (name := parse_name(text, report.host))]
    places = places_of(name.attempt for name in names)
    own = sorted(name for name in names if report.host in {place.host for place in places.get(name.attempt, ())})
    for attempt, of_attempt in groupby(own, key=attrgetter("attempt")):
        entries = {name: journals.pop(name.text) for name in of_attempt}
        source = _Source(report.host, places[attempt])
        try:
            _store_for_attempt(attempt, entries, source)
        except PASSES:
            raise
        except Exception:  # other trainings' entries are stored; these one by one
            logger.exception("job=%s attempt=%s: storing the report entry by entry", attempt.job, attempt.number)
            _store_singly(attempt, entries, source)
    if journals:
        logger.warning("host=%s: dropped journals of other hosts: %s", report.host, list(journals)[:10])
    return {text: max(entry.number for entry in entries) for text, entries in journals.items()}


class _Source(NamedTuple):
    host: str
    #: Places of the whole attempt, on all hosts.
    places: set[Place]


@transaction.atomic
def _store_for_attempt(
    attempt: AttemptKey, journals: Mapping[JournalName, list[JournalEntry]], source: _Source
) -> None:
    job = lock_job(attempt.job)
    is_judged = False
    for name, entries in journals.items():
        fresh = _take_new(job, name.text, entries, source.host)
        if not fresh or attempt.number != job.run.attempt:
            continue  # entries of former attempts have no effect
        if name.writer == "metrics":
            store_steps(job, [entry.data for entry in fresh])
        elif name.writer == "recorded":
            _store_recorded(job, [entry.data for entry in fresh])
        elif name.writer == "observed":
            _store_observed(job, [entry.data for entry in fresh])
        else:
            _store(job, fresh, source)
            is_judged = is_judged or any(entry.kind != "checkpoint" for entry in fresh)
    if is_judged:
        judge_job(job.pk)


def _store_singly(attempt: AttemptKey, journals: Mapping[JournalName, list[JournalEntry]], source: _Source) -> None:
    """Store entries one by one. An entry that raises blocks those behind it, is resent, and is set aside at last."""
    for name, entries in journals.items():
        for entry in sorted(entries, key=lambda entry: entry.number):
            try:
                _store_for_attempt(attempt, {name: [entry]}, source)
            except PASSES:
                raise
            except Exception as error:  # counted, shown and set aside
                if not has_had_its_tries(attempt.job, entry, source.host, error):
                    break
                _skip(attempt, entry, source.host, error)


@transaction.atomic
def _skip(attempt: AttemptKey, entry: JournalEntry, host: str, error: Exception) -> None:
    job = lock_job(attempt.job)
    if _take_new(job, entry.journal, [entry], host) and attempt.number == job.run.attempt:
        set_aside(job, entry, host, error)
        end_job(job.pk, entry, host, error)


def _take_new(job: Job, name: str, entries: Sequence[JournalEntry], host: str) -> list[JournalEntry]:
    """Return the new entries in order, each once, up to the first gap, after marking them as stored."""
    journal, _ = Journal.objects.select_for_update().get_or_create(name=name, defaults={"job": job, "host": host})
    fresh = _without_gap({entry.number: entry for entry in entries}, journal.number)
    if fresh or journal.host != host:
        # The coordinator moves with the lead host: the host that sends its journal gets the acknowledgement.
        journal.number, journal.host = fresh[-1].number if fresh else journal.number, host
        journal.save(update_fields=["number", "host"])
    return fresh


def _without_gap(entries: Mapping[int, JournalEntry], stored: int) -> list[JournalEntry]:
    """Return the entries that follow the number `stored` without a gap."""
    return [entries[number] for number in takewhile(entries.__contains__, count(stored + 1))]


def _store(job: Job, entries: Sequence[JournalEntry], source: _Source) -> None:
    for entry in entries:
        try:
            known = protocol.entry_from_json(entry.kind, entry.data)
            if known is None:
                logger.debug("job=%s journal=%s: unknown kind %s", job.pk, entry.journal, entry.kind)
            elif where := misplaced(known, *source):
                raise ValueError(f"the job has no rank {where}")
            else:
                _store_entry(job, known, source.host)
        except (ProtocolError, ValueError) as error:
            # A retry would fail again. The job continues, because a script can write to its journals, too.
            set_aside(job, entry, source.host, error)


def _store_entry(job: Job, entry: protocol.Entry, host: str) -> None:
    match entry:
        case protocol.RankStarted():
            _rank_started(job, entry, host)
        case protocol.RankExited():
            _rank_exited(job, entry)
        case protocol.RankGrouped():
            job.ranks.filter(attempt=job.run.attempt, member_id=entry.member_id).update(grouped=True)
        case protocol.RankLingers():
            _tell(job, Reason.NO_PROGRESS, "rank_lingers", member_id=entry.member_id, seconds=LINGER_SECONDS)
        case protocol.RankJoined():
            ranks = job.ranks.filter(attempt=job.run.attempt, member_id=entry.member_id)
            ranks.filter(state__in=(RankState.LAUNCHING, RankState.JOINING)).update(state=RankState.READY)
        case protocol.RankStuck():
            figures = {name: getattr(entry, name) for name in ("member_id", "host", "why", "seconds")}
            _tell(job, Reason.RANK_LOST, "rank_stuck", **figures)
        case protocol.RankFailed():
            _rank_failed(job, entry)
        case protocol.EnvironmentBuilding():
            _tell(job, Reason.ENVIRONMENT_BUILDING, "environment_building", host=host, requirements=entry.requirements)
        case protocol.EnvironmentFailed():
            _not_built(job, entry, host)
        case protocol.EnvironmentUsed():
            store_software(job, entry, host)
        case protocol.EnvironmentChanged():
            changed = {"host": host, "folder": entry.folder, "changes": entry.changes}
            _tell(job, Reason.ENVIRONMENT_CHANGED, "environment_changed", **changed)
        case protocol.GrowthGivenUp():
            _keep_size(job, entry)
        case protocol.AttemptFailed():
            _give_up(job, entry)
        case protocol.GenerationPlanned():
            generations.plan(job, entry)
        case protocol.GenerationActive():
            generations.activate(job, entry)
        case protocol.GenerationAbandoned():
            generations.abandon(job, entry.generation)
        case protocol.CheckpointPublished():
            checkpoints.store(job, entry)
        case protocol.CheckpointFailed():
            _tell(job, Reason.CHECKPOINT_FAILED, "checkpoint_failed", step=entry.step, error=entry.error)
        case protocol.Restored():
            checkpoints.restore(job, entry)
        case protocol.Profiled():
            speed_profiles.store(job, entry)
        case protocol.ProfileRefused():
            _tell(job, Reason.PROFILE_REFUSED, "profile_refused", why=entry.why)
        case protocol.HeldStill():
            _tell(job, Reason.HOST_LOST, "held_still", host=entry.host, gone=entry.gone)
        case protocol.NoProgress():
            _tell(job, Reason.NO_PROGRESS, "no_progress", text=entry.text)
        case protocol.Lost():
            close_generations(job)
            end_halt(job)
        case protocol.Halted():
            _tell(job, Reason.HALTED, "halted", step=entry.step)
            end_halt(job)
        case protocol.Finished():
            # Steps carry the epoch that they belong to, from 0; now all epochs are done.
            step, epoch = max(job.run.step, entry.step), max(job.run.epoch, entry.epoch)
            change(job, completed_attempt=job.run.attempt, step=step, epoch=epoch)
            key = "trained" if validation_of(job) is None else "measured"
            _tell(job, Reason.COMPLETED, key, step=entry.step, epoch=entry.epoch)


def _tell(job: Job, reason: Reason, key: str, **params: Any) -> None:
    record(job, Why(reason, message(key, **params), "executor"))


def _rank_started(job: Job, started: protocol.RankStarted, host: str) -> None:
    rank, _ = job.ranks.get_or_create(
        attempt=job.run.attempt,
        member_id=started.member_id,
        defaults={"host": host, "slot": started.slot, "pid": started.pid, "started_at": started.started_at},
    )
    # The coordinator's journal may have been stored first.
    generations.enlist(job, rank)


def _rank_exited(job: Job, exited: protocol.RankExited) -> None:
    how = ("code", "signal", "error", "by_script", "stopped", "step", "at")
    seen = {name: getattr(exited, name) for name in how}
    ranks = job.ranks.filter(attempt=job.run.attempt, member_id=exited.member_id)
    ranks.update(state=RankState.EXITED, rank=None, exit=seen)
    if (exited.step or 0) > job.run.step:
        change(job, step=exited.step)
    if batch := too_large(exited.error):
        speed_profiles.refuse_micro_batch(job, *batch)


def _rank_failed(job: Job, failed: protocol.RankFailed) -> None:
    error = failed.error or {}
    where = {"member_id": failed.member_id, "host": failed.host, "step": failed.step}
    reason = reason_of(str(error.get("kind", "")))
    _tell(job, reason, "rank_failed", **where, error=_error_shown(failed), traceback=error.get("traceback", ""))


def _error_shown(failed: protocol.RankFailed | protocol.GrowthGivenUp) -> str:
    return error_words(failed.error) if failed.error else f"exit code {failed.code}"


def _keep_size(job: Job, failed: protocol.GrowthGivenUp) -> None:
    """Return the slots of all ranks that do not train yet, and ask for no others."""
    if job.state not in TRAINING:
        return
    train = {(member.host, member.slot) for member in failed.members}
    kept, others = list[Slot](), list[Slot]()
    for claim in open_claims(job):
        if claim.vacating_at is None:
            (kept if (claim.slot.host.name, claim.slot.index) in train else others).append(claim.slot)
    size = max(len(kept), job.min_slots)
    change(job, growth_limit=size)
    params = message("growth_given_up", size=size, host=failed.host, error=_error_shown(failed))
    resize(job, [], others[max(0, size - len(kept)) :], size, Why(Reason.GROWTH_GIVEN_UP, params, "executor"))


def _give_up(job: Job, failed: protocol.AttemptFailed) -> None:
    given_up = {name: getattr(failed, name) for name in ("member_id", "host", "code", "signal", "error", "step")}
    given_up["attempt"] = job.run.attempt
    change(job, given_up=given_up, step=max(job.run.step, failed.step or 0))


def _not_built(job: Job, failed: protocol.EnvironmentFailed, host: str) -> None:
    lines = failed.why.strip().splitlines() or ["no reason was given"]
    error = {
        "kind": ENVIRONMENT_FAILED,
        "message": lines[-1].strip().removeprefix("cause: ").removeprefix("error: "),
        "traceback": failed.why,
    }
    change(job, given_up={"host": host, "code": 1, "error": error, "attempt": job.run.attempt})


@transaction.atomic
def store_steps(job: Job, records: Sequence[dict[str, Any]]) -> None:
    """Store the records of consecutive steps."""
    points: dict[tuple[str, int], MetricPoint] = {}
    last: StepRecord | None = None
    for values in filter(None, records):  # nothing is left of a superseded lead's
        step = _parse(job, values, StepRecord)
        if step is not None:
            last = step
            points |= {(point.name, point.step): point for point in _points(job, step, values)}
    if last is None:
        return
    _store_points(job, list(points.values()))
    change(
        job,
        # The exits of ranks, which name a later step, may have been stored first.
        step=max(job.run.step, last.step),
        stepped_at=timezone.now(),
        epoch=max(job.run.epoch, last.epoch),
        progress=_progress(job, last.progress),
        final_metrics={**job.run.final_metrics, **_newest(points.values())},
        curve_limits=_limits(job, left_out=max(map(_beyond, records))),
        # A validation run starts over after a loss, however much it had measured.
        fruitless_starts=0 if validation_of(job) is None else job.run.fruitless_starts,
    )


def _store_recorded(job: Job, records: Sequence[dict[str, Any]]) -> None:
    """Store metrics that a script without a session has recorded. Its step numbers do not count as progress."""
    points: dict[tuple[str, int], MetricPoint] = {}
    for values in filter(None, records):
        recorded = _parse(job, values, RecordedStep)
        if recorded is not None:
            points |= {(point.name, point.step): point for point in _points(job, recorded, values)}
    if points:
        _store_points(job, list(points.values()))
        metrics = {**job.run.final_metrics, **_newest(points.values())}
        limits = _limits(job, left_out=max(map(_beyond, records)))
        change(job, final_metrics=metrics, curve_limits=limits, stepped_at=timezone.now())


def _store_observed(job: Job, records: Sequence[dict[str, Any]]) -> None:
    """Store metrics that a plain script prints and writes, dropping points parsed with an outdated pattern."""
    parsed = [step for values in records if values and (step := _parse(job, values, ObservedStep)) is not None]
    steps = [step for step in parsed if step.kind != "log" or step.revision == job.log_pattern_revision]
    if not steps:
        return
    points, sources = observed_points(job, [_within_limits(step) for step in steps])
    _store_points(job, points)
    metrics = {**job.run.final_metrics, **_newest(points)}
    limits = _limits(
        job,
        left_out=max(max(step.left_out, len(step.metrics) - _MAX_METRICS_PER_STEP) for step in steps),
        has_gaps=any(step.has_gaps for step in steps),
    )
    columns = observed_columns(job, steps)
    positions = tell_begin(job, steps)
    columns["stepped_at"] = timezone.now()
    change(job, curve_sources=sources, curve_limits=limits, final_metrics=metrics, positions=positions, **columns)


@transaction.atomic
def store_read_again(job_id: int, pattern: str, steps: Sequence[ObservedStep]) -> Job:
    """Replace the curves from a finished job's logs by those that the new pattern parses."""
    job = lock_job(job_id)
    names, sources = forget_logs(job.run.curve_sources)
    job.metrics.filter(name__in=names).delete()
    kept = {name: value for name, value in job.run.final_metrics.items() if name not in names}
    take_pattern(job, pattern)
    change(job, curve_sources=sources, final_metrics=kept)
    if steps:
        points, sources = observed_points(job, [_within_limits(step) for step in steps])
        for first in range(0, len(points), _POINTS_AT_ONCE):
            _store_points(job, points[first : first + _POINTS_AT_ONCE])
        last: dict[str, Any] = {"step": max(step.step for step in steps), "epoch": max(step.epoch for step in steps)}
        change(job, curve_sources=sources, final_metrics={**kept, **_newest(points)}, **last)
    return job


def _within_limits(step: ObservedStep) -> ObservedStep:
    names = [name for name in step.metrics if 0 < len(name) <= _MAX_METRIC_NAME_LENGTH][:_MAX_METRICS_PER_STEP]
    return structs.replace(step, metrics={name: _finite(step.metrics[name]) for name in names})


def _newest(points: Iterable[MetricPoint]) -> dict[str, float | None]:
    return {point.name: point.value for point in sorted(points, key=lambda point: point.step)}


def _parse(job: Job, values: dict[str, Any], kind: type[Step]) -> Step | None:
    try:
        return from_json(kind, values)
    except ProtocolError as error:
        logger.warning("job=%s dropped a record of metrics: %s", job.pk, error)
        return None


def _names(values: dict[str, Any]) -> list[str]:
    return [name for name in values if name not in _FIXED_KEYS and type(values[name]) in (int, float, NoneType)]


def _beyond(values: dict[str, Any]) -> int:
    """Return the number of metrics that are not stored of a record."""
    names = _names(values)
    short = sum(len(name) <= _MAX_METRIC_NAME_LENGTH for name in names)
    return len(names) - min(short, _MAX_METRICS_PER_STEP)


def _limits(job: Job, *, left_out: int, has_gaps: bool = False) -> dict[str, Any]:
    before = job.run.curve_limits
    names = max(before.get("names", 0), left_out)
    return {**before, **({"names": names} if names > 0 else {}), **({"gaps": True} if has_gaps else {})}


def _points(job: Job, step: StepRecord | RecordedStep, values: dict[str, Any]) -> list[MetricPoint]:
    at, epoch = datetime.fromtimestamp(step.at, UTC), step.epoch if isinstance(step, StepRecord) else 0
    names = [name for name in _names(values) if len(name) <= _MAX_METRIC_NAME_LENGTH]
    return [
        MetricPoint(job=job, name=name, step=step.step, epoch=epoch, value=_finite(values[name]), at=at)
        for name in names[:_MAX_METRICS_PER_STEP]
    ]


def _store_points(job: Job, points: Sequence[MetricPoint]) -> None:
    # Steps repeat after a restart from a checkpoint: the newer value stays.
    MetricPoint.objects.bulk_create(
        points,
        update_conflicts=True,
        unique_fields=["job", "name", "step"],
        update_fields=["epoch", "value", "at"],
    )
    shown = [
        {"name": point.name, "step": point.step, "epoch": point.epoch, "value": point.value, "at": iso(point.at)}
        for point in points
    ]
    if shown:
        live.publish(job_topic(job.pk), "append", {"metrics": shown})


def _progress(job: Job, reported: float | None) -> float | None:
    if job.finished_at is not None or reported is None or not math.isfinite(reported):
        return job.run.progress
    return min(max(reported, 0.0), 1.0)


def _finite(value: float | None) -> float | None:
    """Return the value, or None, which charts draw as a gap, if it is not finite."""
    try:
        return float(value) if value is not None and math.isfinite(value) else None
    except OverflowError:
        return None
