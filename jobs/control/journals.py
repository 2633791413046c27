"""Stores the journal entries of a report, each exactly once, whatever is lost, repeated or late."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django.db import transaction
from tidepool.protocol import JournalEntry, ProtocolError, Report, from_json

from jobs.control import checkpoints, generations, halts
from jobs.control.judgement import judge_job
from jobs.control.metrics import store_steps
from jobs.control.outcome import reason_of
from jobs.control.transition import Why, lock_job, record
from jobs.files.validation_runs import validation_of
from jobs.models import Job, Journal, Rank
from jobs.states import RankState, Reason

__all__ = ["store_entries"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _JournalName:
    job: int
    attempt: int
    #: "shim", "coordinator" or "metrics".
    writer: str


@dataclass(frozen=True)
class _RankStarted:
    member_id: str
    slot: int
    pid: int
    started_at: float


@dataclass(frozen=True)
class _RankExited:
    member_id: str
    code: int | None = None
    signal: int | None = None
    error: dict[str, Any] | None = None
    by_script: bool | None = None
    #: Its shim had told it to end.
    stopped: bool = False
    at: float | None = None


@dataclass(frozen=True)
class _RankJoined:
    member_id: str


@dataclass(frozen=True)
class _RankStuck:
    member_id: str
    host: str
    why: str
    seconds: float


@dataclass(frozen=True)
class _Failed:
    member_id: str
    host: str
    code: int | None
    signal: int | None
    error: dict[str, Any] | None
    step: int | None


@dataclass(frozen=True)
class _NoProgress:
    text: str


@dataclass(frozen=True)
class _Finished:
    step: int
    epoch: int


def store_entries(report: Report) -> dict[str, int]:
    """Store what is new in the report's entries and judge their jobs.

    Returns what to acknowledge of journals whose job is not known here: nobody will ever want them.
    """
    by_job: dict[int, dict[str, list[JournalEntry]]] = defaultdict(lambda: defaultdict(list))
    unknown: dict[str, int] = {}
    for entry in report.entries:
        name = _parse_name(entry.journal)
        if name is None:
            unknown[entry.journal] = max(entry.number, unknown.get(entry.journal, 0))
        else:
            by_job[name.job][entry.journal].append(entry)
    known = set(Job.objects.filter(pk__in=by_job).values_list("pk", flat=True))
    for job_id in sorted(by_job):
        if job_id in known:
            _store_for_job(job_id, by_job[job_id], report.host)
        else:
            unknown |= {name: max(entry.number for entry in entries) for name, entries in by_job[job_id].items()}
    return unknown


@transaction.atomic
def _store_for_job(job_id: int, journals: Mapping[str, list[JournalEntry]], host: str) -> None:
    job = lock_job(job_id)
    judged = False
    for name in sorted(journals):
        parsed = _parse_name(name)
        assert parsed is not None
        fresh = _take_new(job, name, journals[name], host)
        # What a former life still has to say changes nothing any more.
        if fresh and parsed.attempt == job.attempt:
            _store(job, parsed, fresh, host)
            judged = judged or parsed.writer != "metrics"
    if judged:
        judge_job(job.pk)


def _take_new(job: Job, name: str, entries: Sequence[JournalEntry], host: str) -> list[JournalEntry]:
    """The entries that were not stored yet, in order, marked as stored. None at all if some before them are missing."""
    journal, _ = Journal.objects.select_for_update().get_or_create(name=name, defaults={"job": job, "host": host})
    fresh = sorted((entry for entry in entries if entry.number > journal.number), key=lambda entry: entry.number)
    if fresh and fresh[0].number != journal.number + 1:
        fresh = []
    if fresh or journal.host != host:
        # The coordinator moves with the lead: whoever sends its journal is told how far it is stored.
        journal.number, journal.host = fresh[-1].number if fresh else journal.number, host
        journal.save(update_fields=["number", "host"])
    return fresh


def _store(job: Job, name: _JournalName, entries: Sequence[JournalEntry], host: str) -> None:
    if name.writer == "metrics":
        store_steps(job, [entry.data for entry in entries])
        return
    for entry in entries:
        store = _KINDS.get(entry.kind)
        if store is None:
            logger.debug("job=%s journal=%s: %s is not known here", job.pk, entry.journal, entry.kind)
            continue
        try:
            store(job, entry.data, host)
        except (ProtocolError, ValueError, OverflowError) as error:
            logger.warning("job=%s journal=%s number=%s left out: %s", job.pk, entry.journal, entry.number, error)


def _rank_started(job: Job, data: dict[str, Any], host: str) -> None:
    started = from_json(_RankStarted, data)
    rank, _ = Rank.objects.get_or_create(
        job=job,
        attempt=job.attempt,
        member_id=started.member_id,
        defaults={"host": host, "slot": started.slot, "pid": started.pid, "started_at": started.started_at},
    )
    # The coordinator's journal may have been read first.
    generations.enlist(job, rank)


def _rank_exited(job: Job, data: dict[str, Any], host: str) -> None:
    exited = from_json(_RankExited, data)
    Rank.objects.filter(job=job, attempt=job.attempt, member_id=exited.member_id).update(
        state=RankState.EXITED,
        rank=None,
        exit={name: value for name, value in asdict(exited).items() if name != "member_id"},
    )


def _rank_joined(job: Job, data: dict[str, Any], host: str) -> None:
    joined = from_json(_RankJoined, data)
    ranks = Rank.objects.filter(job=job, attempt=job.attempt, member_id=joined.member_id)
    ranks.filter(state__in=(RankState.LAUNCHING, RankState.JOINING)).update(state=RankState.READY)


def _rank_stuck(job: Job, data: dict[str, Any], host: str) -> None:
    stuck = from_json(_RankStuck, data)
    text = f"The rank {stuck.member_id} on {stuck.host} is killed: {stuck.why}. The others train on."
    record(job, Why(Reason.RANK_LOST, text, "executor", {"member_id": stuck.member_id, "seconds": stuck.seconds}))


def _rank_failed(job: Job, data: dict[str, Any], host: str) -> None:
    failed = from_json(_Failed, data)
    error = failed.error or {}
    shown = f"{error.get('kind', 'exit code')}: {error.get('message', failed.code)}"
    when = "before it took part" if failed.step is None else f"after step {failed.step}"
    text = f"The script failed in the rank {failed.member_id} on {failed.host} {when}: {shown}. The others train on."
    params = {"member_id": failed.member_id, "step": failed.step, "traceback": error.get("traceback", "")}
    record(job, Why(reason_of(str(error.get("kind", ""))), text, "executor", params))


def _failed(job: Job, data: dict[str, Any], host: str) -> None:
    """The same error came again at the same step: the coordinator has given the attempt up."""
    given_up = asdict(from_json(_Failed, data)) | {"attempt": job.attempt}
    step = max(job.step, given_up["step"] or 0)
    Job.objects.filter(pk=job.pk).update(given_up=given_up, step=step)
    job.given_up, job.step = given_up, step


def _no_progress(job: Job, data: dict[str, Any], host: str) -> None:
    record(job, Why(Reason.NO_PROGRESS, from_json(_NoProgress, data).text, "executor"))


def _finished(job: Job, data: dict[str, Any], host: str) -> None:
    finished = from_json(_Finished, data)
    Job.objects.filter(pk=job.pk).update(completed_attempt=job.attempt)
    job.completed_attempt = job.attempt
    text = f"Trained to the end: {finished.step} steps, {finished.epoch} epochs; the final weights are written."
    if validation_of(job) is not None:
        text = "Measured on the held-out samples; the result is written."
    record(job, Why(Reason.COMPLETED, text, "executor", {"step": finished.step, "epoch": finished.epoch}))


def _lost(job: Job, data: dict[str, Any], host: str) -> None:
    generations.lose(job)
    halts.end(job)


_KINDS: dict[str, Callable[[Job, dict[str, Any], str], None]] = {
    "rank_started": _rank_started,
    "rank_exited": _rank_exited,
    "rank_joined": _rank_joined,
    "generation_planned": lambda job, data, host: generations.plan(job, data),
    "generation_active": lambda job, data, host: generations.activate(job, data),
    "generation_abandoned": lambda job, data, host: generations.abandon(job, data),
    "lost": _lost,
    "halted": lambda job, data, host: halts.store(job, data),
    "rank_stuck": _rank_stuck,
    "rank_failed": _rank_failed,
    "failed": _failed,
    "no_progress": _no_progress,
    "finished": _finished,
    "checkpoint": lambda job, data, host: checkpoints.store(job, data),
    "checkpoint_failed": lambda job, data, host: checkpoints.fail(job, data),
    "restored": lambda job, data, host: checkpoints.restore(job, data),
}


def _parse_name(text: str) -> _JournalName | None:
    job, _, rest = text.partition(".")
    attempt, _, rest = rest.partition(".")
    writer = rest.partition(".")[0]
    numeric = all(part.isascii() and part.isdigit() and len(part) < 19 for part in (job, attempt))
    if not numeric or writer not in ("shim", "coordinator", "metrics") or len(text) > 255:
        return None
    return _JournalName(int(job), int(attempt), writer)
