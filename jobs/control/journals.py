"""Journal entries of a report, stored exactly once whatever is lost, repeated or late. Called by `jobs.tasks` only."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db import transaction
from tidepool import protocol
from tidepool.protocol import JournalEntry, ProtocolError, Report

from jobs.control import checkpoints, generations, halts
from jobs.control.allocation import close_generations
from jobs.control.judgement import judge_job
from jobs.control.metrics import store_steps
from jobs.control.outcome import reason_of
from jobs.control.transition import Why, change, lock_job, record
from jobs.files.validation_runs import validation_of
from jobs.messages import message
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
        # Entries of a former attempt change nothing any more.
        if fresh and parsed.attempt == job.run.attempt:
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
        try:
            known = protocol.entry_from_json(entry.kind, entry.data)
            if known is None:
                logger.debug("job=%s journal=%s: %s is not known here", job.pk, entry.journal, entry.kind)
            else:
                _store_entry(job, known, host)
        except (ProtocolError, ValueError, OverflowError) as error:
            logger.warning("job=%s journal=%s number=%s left out: %s", job.pk, entry.journal, entry.number, error)


def _store_entry(job: Job, entry: protocol.Entry, host: str) -> None:
    match entry:
        case protocol.RankStarted():
            _rank_started(job, entry, host)
        case protocol.RankExited():
            _rank_exited(job, entry)
        case protocol.RankJoined():
            _rank_joined(job, entry)
        case protocol.RankStuck():
            _rank_stuck(job, entry)
        case protocol.RankFailed():
            _rank_failed(job, entry)
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
            checkpoints.fail(job, entry)
        case protocol.Restored():
            checkpoints.restore(job, entry)
        case protocol.NoProgress():
            record(job, Why(Reason.NO_PROGRESS, message("no_progress", text=entry.text), "executor"))
        case protocol.Lost():
            close_generations(job)
            halts.end(job)
        case protocol.Halted():
            halts.store(job, entry.step)
        case protocol.Finished():
            _finished(job, entry)


def _rank_started(job: Job, started: protocol.RankStarted, host: str) -> None:
    rank, _ = Rank.objects.get_or_create(
        job=job,
        attempt=job.run.attempt,
        member_id=started.member_id,
        defaults={"host": host, "slot": started.slot, "pid": started.pid, "started_at": started.started_at},
    )
    # The coordinator's journal may have been read first.
    generations.enlist(job, rank)


def _rank_exited(job: Job, exited: protocol.RankExited) -> None:
    how = ("code", "signal", "error", "by_script", "stopped", "at")
    Rank.objects.filter(job=job, attempt=job.run.attempt, member_id=exited.member_id).update(
        state=RankState.EXITED, rank=None, exit={name: getattr(exited, name) for name in how}
    )


def _rank_joined(job: Job, joined: protocol.RankJoined) -> None:
    ranks = Rank.objects.filter(job=job, attempt=job.run.attempt, member_id=joined.member_id)
    ranks.filter(state__in=(RankState.LAUNCHING, RankState.JOINING)).update(state=RankState.READY)


def _rank_stuck(job: Job, stuck: protocol.RankStuck) -> None:
    params = message("rank_stuck", member_id=stuck.member_id, host=stuck.host, why=stuck.why, seconds=stuck.seconds)
    record(job, Why(Reason.RANK_LOST, params, "executor"))


def _rank_failed(job: Job, failed: protocol.RankFailed) -> None:
    error = failed.error or {}
    shown = f"{error.get('kind', 'exit code')}: {error.get('message', failed.code)}"
    params = message(
        "rank_failed",
        member_id=failed.member_id,
        host=failed.host,
        step=failed.step,
        error=shown,
        traceback=error.get("traceback", ""),
    )
    record(job, Why(reason_of(str(error.get("kind", ""))), params, "executor"))


def _give_up(job: Job, failed: protocol.AttemptFailed) -> None:
    given_up = {name: getattr(failed, name) for name in ("member_id", "host", "code", "signal", "error", "step")}
    given_up["attempt"] = job.run.attempt
    change(job, given_up=given_up, step=max(job.run.step, failed.step or 0))


def _finished(job: Job, finished: protocol.Finished) -> None:
    change(job, completed_attempt=job.run.attempt)
    key = "trained" if validation_of(job) is None else "measured"
    record(job, Why(Reason.COMPLETED, message(key, step=finished.step, epoch=finished.epoch), "executor"))


def _parse_name(text: str) -> _JournalName | None:
    job, _, rest = text.partition(".")
    attempt, _, rest = rest.partition(".")
    writer = rest.partition(".")[0]
    numeric = all(part.isascii() and part.isdigit() and len(part) < 19 for part in (job, attempt))
    if not numeric or writer not in ("shim", "coordinator", "metrics") or len(text) > 255:
        return None
    return _JournalName(int(job), int(attempt), writer)
