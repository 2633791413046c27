"""Drains, resumes, removes and restores hosts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from core.audit.entries import audit
from core.errors import Conflict
from core.live import CLUSTER, HOSTS, hold, publish
from workers.models import CapacityPoint, Host
from workers.queries import held_slots, hosts_now

__all__ = [
    "drain_host",
    "record_capacity",
    "refuse_removal",
    "remove_host",
    "restore_host",
    "resume_host",
    "retire_host",
    "write_host_states",
]

Actor = AbstractBaseUser | str


@dataclass(frozen=True)
class _Change:
    old: Host.State
    new: Host.State
    #: As the audit has it.
    done: str


#: What an administrator may cause here. Reports of executors cause the others.
_CHANGES = {
    "drain": _Change(Host.State.ONLINE, Host.State.DRAINING, "drained"),
    "resume": _Change(Host.State.DRAINING, Host.State.ONLINE, "resumed"),
}


def drain_host(name: str, actor: Actor) -> None:
    """No new ranks; elastic ranks move off live, fixed-size jobs finish."""
    _change_host(name, "drain", actor)


def resume_host(name: str, actor: Actor) -> None:
    _change_host(name, "resume", actor)


def retire_host(name: str) -> None:
    """A host that is gone for good: it offers nothing until its executor reports again."""
    write_host_states(Host.objects.filter(name=name).exclude(state=Host.State.OFFLINE), Host.State.OFFLINE)


@transaction.atomic
def remove_host(name: str, actor: Actor) -> None:
    """Take it from the lists; what it did stays in the history.

    One that is gone comes back with the next report of its executor; one that still reports, when its executor is
    started again: by itself it would be back within a second.
    """
    hold(CLUSTER, HOSTS)
    host = Host.objects.get(name=name)
    refuse_removal(host)
    boot = host.boot if host.state == Host.State.DRAINING else ""
    known = Host.objects.filter(pk=host.pk, state=host.state, removed_at=None)
    write_host_states(known, Host.State.OFFLINE, removed_at=timezone.now(), removed_boot=boot)
    audit(actor, "removed", kind="host", key=host.pk, name=name, before={"state": host.state})


@transaction.atomic
def restore_host(name: str, actor: Actor) -> None:
    """Put a removed host back into the lists, as it was."""
    hold(CLUSTER, HOSTS)
    host = Host.objects.get(name=name)
    if host.removed_at is None:
        raise Conflict(f"The host {name} is there: it has come back already.")
    state = Host.State.DRAINING if host.removed_boot else Host.State.OFFLINE
    write_host_states(Host.objects.filter(pk=host.pk), state, removed_at=None, removed_boot="")
    audit(actor, "restored", kind="host", key=host.pk, name=name, after={"state": state})


def refuse_removal(host: Host) -> None:
    """Conflict, with what to do first, while it is in service or trainings hold GPUs of it."""
    if host.removed_at is not None:
        raise Conflict(f"The host {host.name} is removed already.")
    held = held_slots(host)
    if held:
        gpus = "1 GPU of it is" if held == 1 else f"{held} GPUs of it are"
        what = "wait until they have moved off or finished" if host.state == Host.State.DRAINING else "drain it first"
        raise Conflict(f"The host {host.name} cannot be removed: {gpus} held by trainings; {what}, or stop them.")
    if host.state == Host.State.ONLINE:
        raise Conflict(f"The host {host.name} is in service: drain it first, and remove it once nothing runs there.")


@transaction.atomic
def _change_host(name: str, verb: str, actor: Actor) -> None:
    change = _CHANGES[verb]
    if not write_host_states(Host.objects.filter(name=name, state=change.old), change.new):
        state = Host.objects.values_list("state", flat=True).get(name=name)
        raise Conflict(f"The host {name} is {state}: only one that is {change.old.value} can be told to {verb}.")
    key = Host.objects.values_list("pk", flat=True).get(name=name)
    states = {"before": {"state": change.old}, "after": {"state": change.new}}
    audit(actor, change.done, kind="host", key=key, name=name, **states)


@transaction.atomic
def write_host_states(known: QuerySet[Host], new: Host.State, **changes: Any) -> list[str]:
    """Give these hosts another state, write down what the pool has of them, tell everybody; returns their names."""
    # In the order of all locks (see `raise_revisions`): topics, then hosts by id.
    hold(CLUSTER, HOSTS)
    hosts = list(known.select_for_update().order_by("pk"))
    Host.objects.filter(pk__in=[host.pk for host in hosts]).update(state=new, **changes)
    now = timezone.now()
    for host in hosts:
        host.state = new
        record_capacity(host, now)
    names = [host.name for host in hosts]
    if names:
        publish(CLUSTER, "state", {"hosts": {name: {"state": str(new)} for name in names}})
        publish(HOSTS, "state", hosts_now(names))
    return names


def record_capacity(host: Host, at: datetime) -> None:
    """Write down how many slots the pool has of a host from now on, if that is another number than before.

    The caller has changed the host's row in the same transaction, so that nobody else does at once.
    """
    slots = 0 if host.state == Host.State.OFFLINE else host.slots.filter(index__lt=host.ngpus).count()
    newest = host.capacity_points.order_by("-at", "-id").values_list("slots", flat=True).first()
    if slots != (newest or 0):
        CapacityPoint.objects.create(host=host, at=at, slots=slots)
