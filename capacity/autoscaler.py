"""The autoscaler: sees what capacity is wanted, decides about each fleet, and calls its command for each change.

All that it knows is in the database: another process can go on after it. A host that is to be stopped drains first, so
its trainings leave it live, and its command is called once no training holds its GPUs.
"""

import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from capacity.fleets import Fleet, FleetsError, read_fleets
from capacity.hooks import Answer, HookCall, HookFailed
from capacity.models import FleetChange, FleetState
from capacity.queries import fleet_hosts, shape_of, situation
from capacity.scaling import LONGEST_RETRY_SECONDS, Decision, Situation, decide, limit_of_fleet
from core.errors import UserError
from core.text import plural
from jobs.control.snapshots import snapshot
from scheduling.capacity import with_hosts
from workers.actions import drain_host, remove_host, resume_host, retire_host
from workers.join_tokens import create_join_token
from workers.models import Host
from workers.queries import held_slots

__all__ = ["AUTOSCALER", "Autoscaler"]

logger = logging.getLogger(__name__)

#: Author of its changes in the audit log.
AUTOSCALER = "autoscaler"
#: Time after which a silent host of a fleet is taken to be gone for good.
_GONE = timedelta(minutes=10)
_MOST_WORDS = 500
_State = FleetChange.State


class Autoscaler:
    def __init__(self, file: Path, clock: Callable[[], datetime] = timezone.now) -> None:
        self._file, self._clock = file, clock
        self._fleets: tuple[Fleet, ...] = ()
        #: Change -> its running command.
        self._calls: dict[int, HookCall] = {}
        self._problem = ""

    def turn(self) -> bool:
        """Look once at every fleet. Returns whether to look again at once."""
        now = self._clock()
        self._read()
        self._take_over(now)
        self._collect(now)
        for fleet in self._fleets:
            self._follow(fleet, now)
        seen = snapshot(now, measures=True)
        for fleet in self._fleets:
            changes = self._open(fleet)
            found = situation(fleet, seen, changes, now)
            decision = decide(fleet, found)
            self._note(fleet, found, decision, now)
            self._carry_out(fleet, found, decision, now)
            brought = found.coming + decision.count
            seen = with_hosts(seen, shape_of(fleet), brought)
        FleetState.objects.exclude(name__in=[fleet.name for fleet in self._fleets]).delete()
        return False

    def leave(self) -> None:
        """End the commands that run. Whoever goes on finds their changes."""
        for call in self._calls.values():
            call.end()
        self._calls.clear()

    def _read(self) -> None:
        try:
            self._fleets, problem = read_fleets(self._file), ""
        except FleetsError as error:
            problem = str(error)
        if problem and problem != self._problem:
            logger.error("fleets: %s The fleets stay as they were.", problem)
        self._problem = problem

    def _open(self, fleet: Fleet) -> list[FleetChange]:
        return list(FleetChange.objects.filter(fleet=fleet.name, state__in=FleetChange.OPEN).order_by("pk"))

    def _take_over(self, now: datetime) -> None:
        """Continue with changes whose command was running when an earlier autoscaler ended."""
        for change in FleetChange.objects.filter(state=_State.CALLING).exclude(pk__in=self._calls):
            if change.action == FleetChange.Action.STOP:  # can be done again
                _write(change, state=_State.DRAINING)
            else:
                note = "The autoscaler ended while the command ran, so its answer is not known."
                _write(change, state=_State.COMING, note=note, called_at=now)

    # --- commands -----------------------------------------------------------------------------------------------------

    def _call(self, fleet: Fleet, change: FleetChange, present: int, now: datetime) -> None:
        _write(change, state=_State.CALLING, called_at=now)
        try:
            request = _request(fleet, change, present)
            logger.info("fleet=%s change=%s: %s %s", fleet.name, change.pk, change.action, change.count)
            self._calls[change.pk] = HookCall(fleet.command, request, timeout_seconds=fleet.timeout_seconds)
        except (HookFailed, UserError) as error:
            self._failed(fleet, change, str(error), now)

    def _collect(self, now: datetime) -> None:
        fleets = {fleet.name: fleet for fleet in self._fleets}
        for change in FleetChange.objects.filter(pk__in=self._calls):
            try:
                answer = self._calls[change.pk].result()
            except HookFailed as error:
                del self._calls[change.pk]
                self._failed(fleets.get(change.fleet), change, str(error), now)
                continue
            if answer is not None:
                del self._calls[change.pk]
                self._answered(fleets.get(change.fleet), change, answer, now)

    def _answered(self, fleet: Fleet | None, change: FleetChange, answer: Answer, now: datetime) -> None:
        if change.action == FleetChange.Action.STOP:
            for host in change.hosts:
                _forget(host)
            _write(change, state=_State.DONE, note=answer.message, ended_at=now)
            return
        count = change.count if answer.count is None else answer.count
        if not count:
            self._failed(fleet, change, f"The command starts no host. {answer.message}".strip(), now)
            return
        note = answer.message
        if count > change.count:
            note = f"It says that it starts {count} hosts, and was asked for {change.count}. {note}".strip()
        # More hosts than were asked for are seen as soon as they report.
        _write(change, state=_State.COMING, count=min(count, change.count), note=note[:_MOST_WORDS])

    def _failed(self, fleet: Fleet | None, change: FleetChange, sentence: str, now: datetime) -> None:
        logger.warning("fleet=%s change=%s: %s", change.fleet, change.pk, sentence)
        if change.action == FleetChange.Action.STOP:
            # The host stays drained, and the command is called again after the pause.
            _write(change, state=_State.DRAINING, note=sentence[:_MOST_WORDS])
        else:
            _write(change, state=_State.FAILED, note=sentence[:_MOST_WORDS], ended_at=now)
        state = FleetState.objects.filter(name=change.fleet).first()
        failures = 1 + (state.failures if state else 0)
        pause = min(LONGEST_RETRY_SECONDS, (fleet.hold_seconds if fleet else 0.0) * 2**failures)
        retry_at = now + timedelta(seconds=max(1.0, pause))
        columns = {"failures": failures, "failure": sentence[:_MOST_WORDS], "retry_at": retry_at}
        FleetState.objects.update_or_create(
            name=change.fleet, defaults=columns, create_defaults={**columns, "at": now, "sentence": sentence}
        )

    # --- changes under way --------------------------------------------------------------------------------------------

    def _follow(self, fleet: Fleet, now: datetime) -> None:
        hosts = fleet_hosts(fleet.name)
        taken: set[str] = set()
        for change in self._open(fleet):
            if change.state == _State.COMING:
                taken |= self._count_arrivals(fleet, change, hosts, taken, now)
            elif change.state == _State.DRAINING:
                self._stop_when_empty(fleet, change, now)
        for host in hosts:
            silent = host.last_report_at is None or now - host.last_report_at > _GONE
            if silent and host.state in (Host.State.LOST, Host.State.OFFLINE):
                _forget(host.name)

    def _count_arrivals(
        self, fleet: Fleet, change: FleetChange, hosts: Iterable[Host], taken: set[str], now: datetime
    ) -> set[str]:
        """Note the hosts that have come since the decision, other than those that other changes count."""
        new = [host.name for host in hosts if host.state == Host.State.ONLINE and host.name not in change.before]
        arrived = [name for name in new if name not in taken][: change.count]
        arrived = sorted({*change.hosts, *arrived})[: change.count]
        assert change.called_at is not None
        if len(arrived) == change.count:
            _write(change, state=_State.DONE, hosts=arrived, ended_at=now)
            FleetState.objects.filter(name=fleet.name).update(failures=0, failure="", retry_at=None)
        elif now - change.called_at > timedelta(seconds=fleet.start_seconds):
            _write(change, hosts=arrived)
            missing = plural(change.count - len(arrived), "{count} host has", "{count} hosts have")
            sentence = f"{missing} not reported within {fleet.start_seconds:g} s of the command's call."
            self._failed(fleet, change, f"{sentence} {change.note}".strip(), now)
        elif arrived != change.hosts:
            _write(change, hosts=arrived)
        return set(arrived)

    def _stop_when_empty(self, fleet: Fleet, change: FleetChange, now: datetime) -> None:
        [name] = change.hosts
        host = Host.objects.filter(name=name).first()
        if host is None or host.state == Host.State.ONLINE:  # an administrator has returned it to service
            _write(change, state=_State.CANCELLED, ended_at=now)
            return
        state = FleetState.objects.filter(name=fleet.name).first()
        may_call = state is None or state.retry_at is None or state.retry_at <= now
        is_calling = FleetChange.objects.filter(fleet=fleet.name, state=_State.CALLING).exists()
        if may_call and not is_calling and not held_slots(host):
            self._call(fleet, change, len(fleet_hosts(fleet.name)), now)

    # --- decisions ----------------------------------------------------------------------------------------------------

    def _note(self, fleet: Fleet, seen: Situation, decision: Decision, now: datetime) -> None:
        since = decision.surplus_since
        why = f"{self._problem} {decision.why}".strip()
        columns = {
            "at": now,
            "sentence": why[:_MOST_WORDS],
            "hosts": len(seen.hosts),
            "coming": seen.coming,
            "wanted": seen.wanted.hosts,
            "most": limit_of_fleet(fleet, seen.spent_month)[0],
            "spent_month": seen.spent_month,
            "surplus_since": None if since is None else datetime.fromtimestamp(since, UTC),
        }
        FleetState.objects.update_or_create(name=fleet.name, defaults=columns)

    def _carry_out(self, fleet: Fleet, seen: Situation, decision: Decision, now: datetime) -> None:
        match decision.action:
            case "start":
                change = _new(fleet, FleetChange.Action.START, _State.CALLING, decision, seen, now)
                self._call(fleet, change, seen.present, now)
            case "stop":
                for host in decision.hosts:
                    with transaction.atomic():
                        _new(fleet, FleetChange.Action.STOP, _State.DRAINING, decision, seen, now, host)
                        drain_host(host, AUTOSCALER)
            case "resume":
                for change in self._open(fleet):
                    if change.state == _State.DRAINING and set(change.hosts) <= set(decision.hosts):
                        with transaction.atomic():
                            _write(change, state=_State.CANCELLED, note=decision.why[:_MOST_WORDS], ended_at=now)
                            resume_host(change.hosts[0], AUTOSCALER)


def _new(
    fleet: Fleet, action: str, state: str, decision: Decision, seen: Situation, now: datetime, host: str = ""
) -> FleetChange:
    return FleetChange.objects.create(
        fleet=fleet.name, action=action, state=state, count=decision.count or 1, hosts=[host] if host else [],
        before=list(seen.hosts), why=decision.why[:_MOST_WORDS], at=now,
    )  # fmt: skip


def _write(change: FleetChange, **columns: Any) -> None:
    for name, value in columns.items():
        setattr(change, name, value)
    change.save(update_fields=columns)


def _request(fleet: Fleet, change: FleetChange, present: int) -> dict[str, Any]:
    """Return what the command reads. A new host joins with the token, where the site lets hosts join."""
    is_start = change.action == FleetChange.Action.START
    request = {
        "version": 1,
        "action": str(change.action),
        "fleet": fleet.name,
        "change": change.pk,
        "count": change.count,
        "hosts": change.hosts,
        "total": present + change.count if is_start else max(0, present - change.count),
        "resource_groups": list(fleet.resource_groups),
        "kind": fleet.kind,
        "slots": fleet.slots,
        "site": settings.TIDEPOOL_SITE_URL,
        "why": change.why,
    }
    if is_start and settings.TIDEPOOL_EXECUTOR_BROKER_URL:
        hours = max(1.0, fleet.start_seconds / 1800)
        request["join_token"], _ = create_join_token(AUTOSCALER, hosts=change.count, hours=hours)
    return request


def _forget(name: str) -> None:
    """Take a host that is gone out of service and off the lists; it comes back if it reports again."""
    retire_host(name)
    try:
        remove_host(name, AUTOSCALER)
    except UserError as error:
        logger.info("host=%s stays listed: %s", name, error)
