"""Changes hosts and resource groups on an administrator's behalf."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.db import transaction
from django.utils import timezone

from webapp.lib.errors import Conflict, field_error
from webapp.lib.live import CLUSTER, HOSTS, publish
from webapp.lib.names import checked_name
from workers.models import CapacityPoint, Host, ResourceGroup
from workers.queries import attributes, hosts_now
from workers.slot_formula import Formula, FormulaError, parse

__all__ = [
    "ResourceGroupSpec",
    "create_resource_group",
    "drain_host",
    "record_capacity",
    "resume_host",
    "retire_host",
    "tell_of_hosts",
]

#: (old, new) -> who may cause it here. Reports of executors cause the others.
_HOST_TRANSITIONS = {
    "drain": (Host.State.ONLINE, Host.State.DRAINING),
    "resume": (Host.State.DRAINING, Host.State.ONLINE),
}


@dataclass(frozen=True)
class ResourceGroupSpec:
    name: str
    slot_rule: str = "ngpus"
    kind: str = ResourceGroup.Kind.GPU
    selection: str = ResourceGroup.Selection.DYNAMIC
    description: str = ""
    #: Names; for a static selection only.
    hosts: list[str] = field(default_factory=list)


def create_resource_group(spec: ResourceGroupSpec) -> ResourceGroup:
    name = checked_name(spec.name, limit=64)
    for label, value, choices in (
        ("kind", spec.kind, ResourceGroup.Kind.values),
        ("selection", spec.selection, ResourceGroup.Selection.values),
    ):
        if value not in choices:
            raise field_error(label, f"There is no such {label}: use {' or '.join(choices)}.")
    members = _members(spec)
    _check_rule(spec, members)
    with transaction.atomic():
        group, is_new = ResourceGroup.objects.get_or_create(
            name=name,
            defaults={
                "slot_rule": spec.slot_rule,
                "kind": spec.kind,
                "selection": spec.selection,
                "description": spec.description,
            },
        )
        if not is_new:
            raise Conflict(f"There is a resource group {name!r} already.", fields={"name": ["This name is taken."]})
        if spec.selection == ResourceGroup.Selection.STATIC:
            group.hosts.set(members)
    return group


def drain_host(name: str) -> None:
    """No new ranks; elastic ranks move off live, fixed-size jobs finish."""
    _change_host(name, "drain")


def resume_host(name: str) -> None:
    _change_host(name, "resume")


def retire_host(name: str) -> None:
    """A host that is gone for good: it offers nothing until its executor reports again."""
    _write_host_state(name, [Host.State.ONLINE, Host.State.DRAINING, Host.State.LOST], Host.State.OFFLINE)


def _change_host(name: str, verb: str) -> None:
    old, new = _HOST_TRANSITIONS[verb]
    if not _write_host_state(name, [old], new):
        state = Host.objects.values_list("state", flat=True).get(name=name)
        raise Conflict(f"The host {name} is {state}: only one that is {old.value} can be told to {verb}.")


@transaction.atomic
def _write_host_state(name: str, old: list[Host.State], new: Host.State) -> bool:
    changed = Host.objects.filter(name=name, state__in=old).update(state=new) == 1
    if changed:
        tell_of_hosts([name])
    return changed


@transaction.atomic
def tell_of_hosts(names: Sequence[str]) -> None:
    """Call it when these hosts have another state: writes down what the pool has of them, and tells everybody."""
    for host in Host.objects.filter(name__in=names).order_by("pk"):
        record_capacity(host, timezone.now())
    told = hosts_now(names)
    if told:
        publish(CLUSTER, "state", {"hosts": {name: {"state": host["state"]} for name, host in told.items()}})
        publish(HOSTS, "state", told)


def record_capacity(host: Host, at: datetime) -> None:
    """Write down how many slots the pool has of a host from now on, if that is another number than before.

    The caller has changed the host's row in the same transaction, so that nobody else does at once.
    """
    slots = 0 if host.state == Host.State.OFFLINE else host.slots.filter(index__lt=host.ngpus).count()
    newest = host.capacity_points.order_by("-at", "-id").values_list("slots", flat=True).first()
    if slots != (newest or 0):
        CapacityPoint.objects.create(host=host, at=at, slots=slots)


def _members(spec: ResourceGroupSpec) -> list[Host]:
    if spec.selection == ResourceGroup.Selection.DYNAMIC:
        return list(Host.objects.all())
    members = list(Host.objects.filter(name__in=spec.hosts))
    unknown = sorted(set(spec.hosts) - {host.name for host in members})
    if unknown or not members:
        what = f"There is no host {unknown[0][:100]!a}" if unknown else "A static group needs a host"
        raise field_error("hosts", f"{what}: name hosts that have reported.")
    return members


def _check_rule(spec: ResourceGroupSpec, members: list[Host]) -> None:
    try:
        formula = parse(spec.slot_rule)
        for host in members:
            _check_rule_on(spec, formula, host)
    except FormulaError as error:
        raise field_error("slot_rule", f"The slot rule cannot be used: {error}.") from error


def _check_rule_on(spec: ResourceGroupSpec, formula: Formula, host: Host) -> None:
    offered = formula.slots(attributes(host))
    if spec.kind == ResourceGroup.Kind.GPU and offered > host.ngpus:
        raise field_error(
            "slot_rule", f"The rule gives {offered} slots on {host.name}, which has {host.ngpus} GPUs: use ngpus."
        )
