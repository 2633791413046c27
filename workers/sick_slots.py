"""Slots whose GPU is faulty: they are offered to nobody until a person returns them, after a clean test.

A brake keeps a mistake in the judgement from emptying the cluster: by itself the control plane takes the slots of one
host in ten minutes, and leaves nine tenths of the hosts alone, but always one host.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from core.audit.entries import audit
from core.errors import Conflict
from core.live import hold, publish
from workers.actions import Actor, record_capacity
from workers.models import Host, Slot
from workers.topics import CLUSTER

__all__ = ["may_withdraw", "note_faults", "return_slot"]

_PAUSE = timedelta(minutes=10)
_MOST_HOSTS = 0.1


def may_withdraw(host: int, sick: Mapping[int, datetime], hosts: int, now: datetime) -> bool:
    """Return whether the control plane may take slots of the host out of service by itself.

    sick: hosts with sick slots, each with the time of its newest one. hosts: their number in the cluster.
    """
    others = {other: since for other, since in sick.items() if other != host}
    is_quiet = all(now - since >= _PAUSE for since in others.values())
    return is_quiet and len(others) + 1 <= max(1, int(hosts * _MOST_HOSTS))


def note_faults(host: Host, slots: Iterable[Slot], faults: Mapping[int, str], now: datetime) -> bool:
    """Store the faults that a report tells, by index of slot; return whether slots became sick.

    The caller has locked the host's row.
    """
    changed = [slot for slot in slots if slot.fault != faults.get(slot.index, slot.fault)]
    for slot in changed:
        slot.fault = faults[slot.index]
        Slot.objects.filter(pk=slot.pk).update(fault=slot.fault)
    faulty = [slot for slot in slots if slot.fault and slot.sick_since is None]
    if not faulty or not may_withdraw(host.pk, _sick_hosts(), Host.objects.filter(removed_at=None).count(), now):
        return False
    for slot in faulty:
        slot.sick_since, slot.sick_why = now, slot.fault
        Slot.objects.filter(pk=slot.pk).update(sick_since=now, sick_why=slot.fault)
        audit("system", "took out of service", kind="GPU", key=slot.pk, name=str(slot), after={"fault": slot.fault})
    return True


def _sick_hosts() -> dict[int, datetime]:
    """Return the hosts with sick slots, each with the time of its newest one.

    Slots of removed hosts and of GPUs that were taken out do not count: nobody could return them.
    """
    there = Slot.objects.filter(host__removed_at=None, index__lt=F("host__ngpus"))
    rows = there.filter(sick_since__isnull=False).order_by("sick_since")
    return {host: since for host, since in rows.values_list("host", "sick_since") if since is not None}


@transaction.atomic
def return_slot(slot: Slot, actor: Actor) -> None:
    """Offer a sick slot again. Raises Conflict while its host still tells a fault, or if it is not sick."""
    hold(CLUSTER)
    host = Host.objects.select_for_update().get(pk=slot.host_id)
    slot = Slot.objects.select_for_update().get(pk=slot.pk)
    if slot.sick_since is None:
        raise Conflict(f"The GPU {slot} is not sick: it is offered.", code="not_sick")
    if slot.fault:
        raise Conflict(
            f"The GPU {slot} is still faulty: {slot.fault}. Its host tests it once a minute while no process holds it; "
            "return it after a test has passed.",
            code="still_faulty",
        )
    before = {"fault": slot.sick_why}
    Slot.objects.filter(pk=slot.pk).update(sick_since=None, sick_why="")
    record_capacity(host, timezone.now())
    audit(actor, "returned", kind="GPU", key=slot.pk, name=str(slot), before=before)
    publish(CLUSTER, "state", {"hosts": {host.name: {"state": str(host.state)}}})
