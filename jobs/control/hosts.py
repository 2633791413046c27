"""Reports of hosts about themselves, and detection of hosts that stop reporting.

`jobs.control.reports` stores reports; the scheduler's process looks for silent hosts once a second.

While the control plane is behind with its reports (`workers.lateness`), it judges nobody by silence.

No process is ended for lack of contact: ranks of a silent host may well keep training. The slots of a silent host
are offered to nobody until it has reported again. Jobs that it leads get another lead host after the lease, and lose
their slots there only after twice the lease, both counted while the control plane itself was well. If all hosts are
silent, the control plane is more likely at fault than the hosts.
"""

import logging
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any

import msgspec
from django.conf import settings
from django.db import transaction
from tidepool.protocol import Report

from core import live
from core.row_updates import update_rows
from jobs.control.checkpoints import continuation
from jobs.control.dead_letters import PASSES, in_words
from jobs.control.dispatch import wake_scheduler
from jobs.control.job_end import judge_job, requeue
from jobs.control.leaving import draining_state, noticed
from jobs.control.lifecycle import hosts_of, keep_lead, led_by, open_claims, raise_revisions, release_claims
from jobs.control.readings import Claims, HostReadings, claims_of, ensure_slots, slots_of, store_readings
from jobs.control.transition import Why, change, lock_job, record
from jobs.messages import message
from jobs.models import Job, Rank, SlotClaim
from jobs.states import HOLDING, LIVE_RANKS, TRAINING, RankState, Reason
from workers.actions import record_capacity, write_host_states
from workers.clocks import behind_seconds, late_seconds, with_reading
from workers.lateness import is_behind, recent_delay
from workers.models import Host
from workers.queries import held_slots
from workers.sick_slots import note_faults
from workers.topics import CLUSTER

__all__ = ["RETURNING", "note_problem", "reap_lost_hosts", "record_hosts", "release_vacated"]

logger = logging.getLogger(__name__)

RETURNING = (Host.State.OFFLINE, Host.State.LOST)
_HEARD = (Host.State.ONLINE, Host.State.DRAINING)
_WATCHED = (*_HEARD, Host.State.LOST)

#: Largest age difference, in seconds, of a late report from an earlier start of the executor. A larger difference
#: means that the host's clock was set back.
_LATE_SECONDS = 60.0
_CLOCK_EVERY = timedelta(seconds=1)
#: Longest delay of reports at which they tell the offset of a clock.
_READABLE_DELAY = timedelta(seconds=2.5)


def record_hosts(reports: Sequence[Report], now: datetime, repeating: Collection[str] = ()) -> dict[str, Host]:
    """Store what hosts report about themselves, one report of each, in one transaction; returns those enrolled.

    repeating: hosts whose reports repeat what is stored, but for times and readings.
    """
    hosts, news = _store(reports, now, repeating)
    revisions = {report.host: report.applied_revision for report in reports}
    ahead = [host for name, host in hosts.items() if revisions[name] > host.desired_revision]
    if ahead or news:
        _tell(ahead, revisions, news)
    return hosts


@transaction.atomic
def _tell(ahead: Sequence[Host], revisions: Mapping[str, int], news: dict[str, Any]) -> None:
    """Publish states of hosts. Separate transaction: live topics are locked before hosts (see raise_revisions)."""
    live.hold(CLUSTER)
    for host in ahead:
        # The executor's revision is ahead of the database: continue above it, or it would ignore every desired state.
        Host.objects.filter(pk=host.pk, desired_revision__lt=revisions[host.name]).update(
            desired_revision=revisions[host.name]
        )
        host.desired_revision = raise_revisions([host.pk])[host.pk]
    if news:
        live.publish(CLUSTER, "state", {"hosts": news})
        wake_scheduler()


def release_vacated(reports: Sequence[Report]) -> dict[str, str]:
    """Release the vacated slots that these reports, one of each host, show empty.

    Returns host -> the problem with a training's slots, where there is one. The next report retries.
    """
    by_host = {report.host: report for report in reports}
    vacating = SlotClaim.objects.open().filter(vacating_at__isnull=False, slot__host__name__in=by_host)
    empty: dict[tuple[int, str], list[SlotClaim]] = defaultdict(list)
    for claim in vacating.select_related("slot__host").order_by("job_id", "id"):
        report = by_host[claim.slot.host.name]
        held = {(rank.job, rank.attempt, rank.slot) for rank in report.ranks}
        is_carried_out = (claim.vacate_revision or 0) <= report.applied_revision
        if is_carried_out and (claim.job_id, claim.attempt, claim.slot.index) not in held:
            empty[claim.job_id, report.host].append(claim)
    problems = {}
    for (job_id, host), claims in empty.items():
        try:
            _release(job_id, claims)
        except PASSES:
            raise
        except Exception as error:  # other trainings' slots are still released
            logger.exception("job=%s: slots that it gave back cannot be released", job_id)
            problems[host] = f"GPUs that training {job_id} gave back: {in_words(error)}"
    return problems


@transaction.atomic
def _release(job_id: int, claims: Sequence[SlotClaim]) -> None:
    job = lock_job(job_id)
    release_claims(claims)
    keep_lead(job)
    judge_job(job.pk)


def note_problem(host: Host, problem: str) -> None:
    """Store the problem with the host's newest report; "": none."""
    if problem != host.report_problem:
        Host.objects.filter(pk=host.pk).update(report_problem=problem)


@transaction.atomic
def _store(
    reports: Sequence[Report], now: datetime, repeating: Collection[str]
) -> tuple[dict[str, Host], dict[str, Any]]:
    """Return the hosts' rows by name, and the changes of their states for the cluster's topic."""
    # Rows are locked in order of id, as everywhere: two processes that take reports never wait for each other.
    rows = Host.objects.select_for_update().filter(name__in={report.host for report in reports}).order_by("pk")
    hosts = {host.name: host for host in rows}
    told = [
        (host, report)
        for report in sorted(reports, key=attrgetter("host"))
        if (host := hosts.get(report.host)) is not None and not _is_late(host, report) and _listens(host, report)
    ]
    if not told:
        return hosts, {}
    slots, claims = slots_of([host for host, _ in told]), claims_of([host for host, _ in told])
    before = {host.pk: _shown(host) for host, _ in told}
    changed_slots, columns, readings = set[int](), {"state", "drains_for_notice_since"}, {}
    for host, report in told:
        columns |= _note_facts(host, report, now)
        has_more = ensure_slots(host, slots[host.pk], report.devices)
        faults = {device.slot: device.fault for device in report.devices}
        if note_faults(host, [*slots[host.pk].values()], faults, now) or has_more:
            changed_slots.add(host.pk)
        heard_at = host.last_report_at or now
        repeats = report.host in repeating
        readings[host.pk] = HostReadings(slots[host.pk], report.devices, claims[host.pk], heard_at, repeats)
        _decide_state(host, report, claims[host.pk], now)
    update_rows(Host.objects.all(), [host for host, _ in told], columns)
    store_readings(readings)
    changed = [host for host, _ in told if host.pk in changed_slots or _shown(host) != before[host.pk]]
    for host in changed:
        record_capacity(host, now)
    return hosts, {host.name: {"state": str(host.state), "virtual": host.virtual} for host in changed}


def _shown(host: Host) -> tuple[Any, ...]:
    """Return what pages show of the host, and the scheduler decides on."""
    return host.state, host.ngpus, host.leaving_at


def _is_late(host: Host, report: Report) -> bool:
    age = host.reported_at - report.at
    return age > 0 and (report.boot == host.boot or age < _LATE_SECONDS)


def _listens(host: Host, report: Report) -> bool:
    """Return whether reports are accepted: not from the same executor after an administrator removed the host."""
    if host.removed_at is None:
        return True
    if (report.leaving or report.boot == host.removed_boot) and not held_slots(host):
        return False  # accepted if a training got a slot at the last moment
    host.removed_at, host.removed_boot = None, ""
    host.save(update_fields=["removed_at", "removed_boot"])
    return True


def _note_facts(host: Host, report: Report, now: datetime) -> set[str]:
    """Take the facts over into the row, and return the names of its columns."""
    columns = msgspec.structs.asdict(report.facts) | {
        **_clock(host, report, now),
        **noticed(host, report, now),
        "boot": report.boot,
        "reported_at": report.at,
        "applied_revision": report.applied_revision,
    }
    if not report.facts.isolation:  # an executor that has just begun does not know yet
        del columns["isolation"], columns["isolation_lacks"]
    for name, value in columns.items():
        setattr(host, name, value)
    return {*columns}


def _clock(host: Host, report: Report, now: datetime) -> dict[str, Any]:
    """Return the report's time by the control plane's clock, and the state of the host's clock."""
    offset = now.timestamp() - report.at
    offsets, read_at = (host.clock_offsets, host.clock_read_at) if report.boot == host.boot else ([], None)
    delay = recent_delay(now) or timedelta(0)
    # A host without a reading was heard at the earliest when the last mark before its report was sent.
    late = late_seconds(offsets, offset) if offsets or not is_behind(delay) else delay.total_seconds()
    # While reports wait, their age would look like the offset of the host's clock. A reading from the future means that
    # the control plane's own clock was set back.
    if delay <= _READABLE_DELAY and (read_at is None or abs(now - read_at) >= _CLOCK_EVERY):
        offsets, read_at = with_reading(offsets, offset), now
    steady = behind_seconds(offsets, report.least_behind)
    jumped = 0.0 if report.clock is None else report.at - report.clock
    return {
        "last_report_at": now - timedelta(seconds=late),
        "clock_offsets": offsets,
        "clock_read_at": read_at,
        "clock_behind_seconds": None if steady is None else steady + jumped,
    }


def _decide_state(host: Host, report: Report, claims: Claims, now: datetime) -> None:
    """Decide on the host's state. A returning host offers slots only if it runs no process unknown to the database."""
    state = host.state
    running = {(rank.job, rank.attempt, rank.slot) for rank in report.ranks}
    if report.leaving:
        state = Host.State.OFFLINE
    elif _is_silent(host, now):  # the report was delayed: the host may be gone by now
        return
    elif state in RETURNING and host.applied_revision >= host.desired_revision and running <= claims.places:
        state = Host.State.ONLINE
    host.state, host.drains_for_notice_since = draining_state(host, state, now)


# --- hosts that fall silent ------------------------------------------------------------------------------------------


def reap_lost_hosts(well_since: datetime | None, now: datetime) -> datetime | None:
    """Mark silent hosts as LOST, and remove jobs from hosts that stay silent. Call it about once per second.

    now: time up to which all reports have been taken.
    well_since: the previous return value: time since which reports have been arriving, or None if none arrive.
    """
    lease = _lease()
    hosts = list(Host.objects.filter(state__in=_WATCHED).order_by("pk"))
    silent = [host for host in hosts if _is_silent(host, now)]
    for host in silent:
        unheard = Host.objects.filter(pk=host.pk, state=host.state, last_report_at=host.last_report_at)
        if host.state != Host.State.LOST and write_host_states(unheard, Host.State.LOST):
            logger.warning("host=%s is lost: its last report came at %s", host.name, host.last_report_at)
    if len(silent) == len(hosts):
        return None
    well_since = well_since or now
    for host in silent:
        silence = now - max(well_since, host.last_report_at or well_since)
        if silence >= lease:
            led = Job.objects.filter(run__lead_host=host.name, state__in=TRAINING)
            for job_id in led.order_by("pk").values_list("pk", flat=True):
                _move_lead(job_id, host)
        if silence >= 2 * lease:
            held = SlotClaim.objects.open().filter(slot__host=host)
            for job_id in sorted(set(held.values_list("job_id", flat=True))):
                _take_off(job_id, host)
    return well_since


def _is_silent(host: Host, now: datetime) -> bool:
    return host.last_report_at is None or now - host.last_report_at > _lease()


def _heard_since(host: Host) -> bool:
    """Return whether the host has reported meanwhile: this process may have hung while another scheduler leads."""
    return not Host.objects.filter(pk=host.pk, last_report_at=host.last_report_at).exists()


def _lease() -> timedelta:
    return timedelta(seconds=settings.TIDEPOOL_LEASE_SECONDS)


@transaction.atomic
def _move_lead(job_id: int, host: Host) -> None:
    """Move the job's coordinator to a host that reports, for the ranks elsewhere that lost their peers and coordinator.

    If the silent host is well, the new coordinator ends the old one.
    """
    job = lock_job(job_id)
    if _heard_since(host):
        return
    places = list(SlotClaim.objects.kept().filter(job=job).select_related("slot__host").order_by("id"))
    heard = [claim.slot.host.name for claim in places if claim.slot.host.state in _HEARD]
    if job.run.lead_host == host.name and job.state in TRAINING and heard:
        logger.warning("job=%s attempt=%s is led by %s now", job.pk, job.run.attempt, heard[0])
        params = {"host": host.name, "lead": heard[0], "seconds": _lease().total_seconds()}
        why = Why(Reason.HOST_LOST, message("lead_moved", **params), "system")
        change(job, why, **led_by(job, heard[0]))
        record(job, why)
        raise_revisions(hosts_of(places))


@transaction.atomic
def _take_off(job_id: int, host: Host) -> None:
    """Release the job's slots on the host; a gang, or a job without slots elsewhere, is queued again."""
    job = lock_job(job_id)
    if _heard_since(host):
        return
    claims = open_claims(job)
    here = [claim for claim in claims if claim.slot.host_id == host.pk]
    if not here:
        return
    kept = [claim for claim in claims if claim.slot.host_id != host.pk and claim.vacating_at is None]
    logger.warning("job=%s attempt=%s gives up %s slots of %s", job.pk, job.run.attempt, len(here), host.name)
    Rank.objects.filter(job=job, host=host.name, state__in=LIVE_RANKS).update(state=RankState.LOST, rank=None)
    release_claims(here)
    why = Why(Reason.HOST_LOST, message("host_lost", host=host.name), "system")
    if job.state in TRAINING:
        _go_on(job, kept, why)
    # A returning host must learn that it lost the job before its slots are offered again.
    raise_revisions([host.pk])
    if job.state in HOLDING:
        judge_job(job.pk)


def _go_on(job: Job, kept: Sequence[SlotClaim], why: Why) -> None:
    if not job.elastic:  # a gang cannot lose a rank
        why = replace(why, params=message("gang_host_lost", host=why.params["host"], **continuation(job)))
    if not kept or not job.elastic:
        requeue(job, why)
        return
    names = [claim.slot.host.name for claim in kept]
    led = {} if job.run.lead_host in names else led_by(job, names[0])
    change(job, why, target_revision=job.run.target_revision + 1, target_slots=len(kept), **led)
    record(job, why)
    raise_revisions(hosts_of(kept))
