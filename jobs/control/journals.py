"""Storage of journal entries: exactly once, even if reports are lost or repeated. Called by `jobs.control.reports`."""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import count, takewhile
from typing import Any, NamedTuple

from django.db import transaction
from tidepool import protocol
from tidepool.protocol import LINGER_SECONDS, JournalEntry, ProtocolError, Report
from tidepool.rank_exits import error_words

from core.row_updates import update_rows
from jobs.control import checkpoints, generations, speed_profiles, time_by_cause
from jobs.control.dead_letters import PASSES, end_job, has_had_its_tries, set_aside
from jobs.control.generations import close_generations
from jobs.control.job_end import end_halt, judge_job
from jobs.control.lifecycle import open_claims, resize
from jobs.control.metrics import store_observed, store_recorded, store_steps, store_steps_of
from jobs.control.outcome import ENVIRONMENT_FAILED, SECRETS_FAILED, reason_of, too_large
from jobs.control.report_authorization import AttemptKey, JournalName, Place, misplaced, parse_name, places_of
from jobs.control.software import store_software
from jobs.control.transition import Why, change, lock_job, lock_jobs, record
from jobs.files.validation_runs import validation_of
from jobs.messages import message
from jobs.models import Job, Journal
from jobs.states import TRAINING, RankState, Reason
from workers.models import Slot

__all__ = ["store_entries"]

logger = logging.getLogger(__name__)

#: Entries of the journals of one host, by journal.
_Entries = Mapping[JournalName, Sequence[JournalEntry]]


def store_entries(reports: Sequence[Report]) -> dict[str, dict[str, int]]:
    """Store the new entries of these reports, one of each host, and judge their jobs.

    Returns the numbers to acknowledge, by host and journal. Journals that are unknown or belong to another host are
    dropped, and acknowledged as a whole.
    """
    journals: dict[tuple[str, str], list[JournalEntry]] = defaultdict(list)
    for report in reports:
        for entry in report.entries:
            journals[report.host, entry.journal].append(entry)
    if not journals:
        return {}
    names = {(host, text): name for host, text in journals if (name := parse_name(text, host))}
    places = places_of(name.attempt for name in names.values())
    hosts = {attempt: {place.host for place in of_attempt} for attempt, of_attempt in places.items()}
    found: dict[AttemptKey, dict[str, dict[JournalName, list[JournalEntry]]]] = defaultdict(lambda: defaultdict(dict))
    for (host, text), name in sorted(names.items(), key=lambda item: (item[1], item[0])):
        if host in hosts.get(name.attempt, ()):
            found[name.attempt][host][name] = journals.pop((host, text))
    _store_all(found, places)
    return _numbers(found, journals)


def _numbers(
    found: Mapping[AttemptKey, Mapping[str, _Entries]], dropped: Mapping[tuple[str, str], Sequence[JournalEntry]]
) -> dict[str, dict[str, int]]:
    numbers: dict[str, dict[str, int]] = defaultdict(dict)
    if dropped:
        logger.warning("dropped journals of other hosts: %s", list(dropped)[:10])
    for (host, text), entries in dropped.items():
        numbers[host][text] = max(entry.number for entry in entries)
    texts = {name.text: host for by_host in found.values() for host, names in by_host.items() for name in names}
    for text, number in Journal.objects.filter(name__in=texts).values_list("name", "number"):
        numbers[texts[text]][text] = number
    return numbers


def _store_all(found: Mapping[AttemptKey, Mapping[str, _Entries]], places: Mapping[AttemptKey, set[Place]]) -> None:
    """Store entries: steps of all jobs in one transaction, all else in one for each job."""
    steps = {attempt: by_host for attempt, by_host in found.items() if _are_steps(by_host)}
    if len(steps) > 1:
        try:
            _store_steps(steps)
        except PASSES:
            raise
        except Exception:  # the faulty one must not keep back the others
            logger.exception("steps of %s trainings cannot be stored together: one by one", len(steps))
        else:
            found = {attempt: by_host for attempt, by_host in found.items() if attempt not in steps}
    for attempt, by_host in found.items():
        try:
            _store_for_attempt(attempt, by_host, places[attempt])
        except PASSES:
            raise
        except Exception:  # other trainings' entries are stored; these one by one
            logger.exception("job=%s attempt=%s: storing the report entry by entry", attempt.job, attempt.number)
            for host, journals in by_host.items():
                _store_singly(attempt, journals, _Source(host, places[attempt]))


def _are_steps(by_host: Mapping[str, _Entries]) -> bool:
    return len(by_host) == 1 and all(name.writer == "metrics" for names in by_host.values() for name in names)


@transaction.atomic
def _store_steps(found: Mapping[AttemptKey, Mapping[str, _Entries]]) -> None:
    jobs = {job.pk: job for job in lock_jobs({attempt.job for attempt in found}, ("run", "validation"))}
    wanted = [
        _Wanted(jobs[attempt.job], name, entries, host)
        for attempt, by_host in found.items()
        for host, journals in by_host.items()
        for name, entries in journals.items()
        if attempt.job in jobs
    ]
    fresh = zip(wanted, _take_new(wanted), strict=True)
    store_steps_of(
        [
            (one.job, [entry.data for entry in entries])
            for one, entries in fresh
            if entries and one.name.attempt.number == one.job.run.attempt
        ]
    )


class _Source(NamedTuple):
    host: str
    #: Places of the whole attempt, on all hosts.
    places: set[Place]


@transaction.atomic
def _store_for_attempt(attempt: AttemptKey, by_host: Mapping[str, _Entries], places: set[Place]) -> None:
    job = lock_job(attempt.job)
    is_judged = False
    for host, journals in by_host.items():
        for name, entries in journals.items():
            [fresh] = _take_new([_Wanted(job, name, entries, host)])
            if not fresh or attempt.number != job.run.attempt:
                continue  # entries of former attempts have no effect
            if name.writer == "metrics":
                store_steps(job, [entry.data for entry in fresh])
            elif name.writer == "recorded":
                store_recorded(job, [entry.data for entry in fresh])
            elif name.writer == "observed":
                store_observed(job, [entry.data for entry in fresh])
            else:
                _store(job, fresh, _Source(host, places))
                is_judged = is_judged or any(entry.kind != "checkpoint" for entry in fresh)
    if is_judged:
        judge_job(job.pk)


def _store_singly(attempt: AttemptKey, journals: _Entries, source: _Source) -> None:
    """Store entries one by one. An entry that raises blocks those behind it, is resent, and is set aside at last."""
    for name, entries in journals.items():
        for entry in sorted(entries, key=lambda entry: entry.number):
            try:
                _store_for_attempt(attempt, {source.host: {name: [entry]}}, source.places)
            except PASSES:
                raise
            except Exception as error:  # counted, shown and set aside
                if not has_had_its_tries(attempt.job, entry, source.host, error):
                    break
                _skip(attempt, name, entry, source.host, error)


@transaction.atomic
def _skip(attempt: AttemptKey, name: JournalName, entry: JournalEntry, host: str, error: Exception) -> None:
    job = lock_job(attempt.job)
    [fresh] = _take_new([_Wanted(job, name, [entry], host)])
    if fresh and attempt.number == job.run.attempt:
        set_aside(job, entry, host, error)
        end_job(job.pk, entry, host, error)


class _Wanted(NamedTuple):
    """Entries that are to be stored of a journal, whose job is locked."""

    job: Job
    name: JournalName
    entries: Sequence[JournalEntry]
    host: str


def _take_new(wanted: Sequence[_Wanted]) -> list[list[JournalEntry]]:
    """Return the new entries of each journal in order, each once, up to the first gap, after marking them as stored."""
    locked = Journal.objects.select_for_update().filter(name__in=[one.name.text for one in wanted]).order_by("name")
    rows = {row.name: row for row in locked}
    if missing := [one for one in wanted if one.name.text not in rows]:
        new = [Journal(name=one.name.text, job=one.job, host=one.host) for one in missing]
        rows |= {row.name: row for row in Journal.objects.bulk_create(new)}
    found, changed = [], []
    for _, name, entries, host in wanted:
        row = rows[name.text]
        fresh = _without_gap({entry.number: entry for entry in entries}, row.number)
        if fresh or row.host != host:
            # The coordinator moves with the lead host: the host that sends its journal gets the acknowledgement.
            row.number, row.host = fresh[-1].number if fresh else row.number, host
            changed.append(row)
        found.append(fresh)
    update_rows(Journal.objects.all(), changed, ["number", "host"])
    return found


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
            _not_built(job, entry, host, ENVIRONMENT_FAILED)
        case protocol.SecretsFailed():
            _not_built(job, entry, host, SECRETS_FAILED)
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
            if protocol.GPU_IS_FULL in entry.why:
                _tell_of_a_full_gpu(job, entry.why)
        case protocol.CheckpointPublished():
            checkpoints.store(job, entry)
        case protocol.CheckpointFailed():
            _tell(job, Reason.CHECKPOINT_FAILED, "checkpoint_failed", step=entry.step, error=entry.error)
        case protocol.Restored():
            checkpoints.restore(job, entry)
        case protocol.Profiled():
            speed_profiles.store(job, entry)
        case protocol.TimeSpent():
            time_by_cause.store(job, entry)
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


def _tell_of_a_full_gpu(job: Job, why: str) -> None:
    """Tell it once for each attempt and rank: the coordinator tries again and again."""
    [rank, *_] = why.split(":")
    told = {"detail__message": "gpu_is_full", "detail__attempt": job.run.attempt, "detail__rank": rank}
    if not job.events.filter(**told).exists():
        _tell(job, Reason.OUT_OF_MEMORY, "gpu_is_full", attempt=job.run.attempt, rank=rank, why=why)


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


def _not_built(job: Job, failed: protocol.EnvironmentFailed | protocol.SecretsFailed, host: str, kind: str) -> None:
    lines = failed.why.strip().splitlines() or ["no reason was given"]
    error = {
        "kind": kind,
        "message": lines[-1].strip().removeprefix("cause: ").removeprefix("error: "),
        "traceback": failed.why,
    }
    change(job, given_up={"host": host, "code": 1, "error": error, "attempt": job.run.attempt})
