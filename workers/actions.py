"""Changes of hosts and resource groups, mostly on an administrator's behalf: the only writer of these rows."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import ProtectedError, QuerySet
from django.utils import timezone

from core.audit.authors import authors_of
from core.audit.entries import audit
from core.edits import UNSEEN, Author, Seen
from core.errors import Conflict, field_error
from core.live import hold, publish
from core.text import checked_name, plural
from workers.broker_users import expel, restore
from workers.group_rules import Offer, attributes
from workers.models import HOST_NAME, CapacityPoint, Host, ResourceGroup
from workers.queries import held_slots
from workers.slot_formula import Formula, FormulaError, parse
from workers.topics import CLUSTER

__all__ = [
    "ResourceGroupSpec",
    "change_authors",
    "change_resource_group",
    "changeable_values",
    "check_resource_group",
    "create_resource_group",
    "delete_resource_group",
    "drain_host",
    "enroll_host",
    "record_capacity",
    "refuse_removal",
    "remove_host",
    "restore_host",
    "resume_host",
    "retire_host",
    "spec_of",
    "write_host_states",
]

_GROUP = "resource group"
_MAX_DESCRIPTION = 200
Actor = AbstractBaseUser | str

# --- hosts ------------------------------------------------------------------------------------------------------------


@transaction.atomic
def enroll_host(name: str, actor: Actor) -> None:
    """Enroll the host of this name. Reports of hosts that are not enrolled are dropped."""
    if not HOST_NAME.fullmatch(name):
        raise field_error(
            "host", "The name of a host consists of at most 64 letters, digits, dots, dashes and underscores."
        )
    Host.objects.get_or_create(name=name)
    audit(actor, "admitted", kind="host", key=name, name=name)


def drain_host(name: str, actor: Actor) -> None:
    """Give the host no new ranks; elastic ranks move off live, fixed-size jobs finish."""
    _change_host(name, actor, "drain", "drained", old=Host.State.ONLINE, new=Host.State.DRAINING)


def resume_host(name: str, actor: Actor) -> None:
    """Take a draining host back into service. Raises Conflict if it drains because its machine will be gone."""
    if Host.objects.filter(name=name, drains_for_notice_since__isnull=False).exists():
        sentence = f"The machine of {name} will be gone soon, as a notice says: it can resume once that is taken back."
        raise Conflict(sentence, code="stale_host")
    _change_host(name, actor, "resume", "resumed", old=Host.State.DRAINING, new=Host.State.ONLINE)


@transaction.atomic
def _change_host(name: str, actor: Actor, verb: str, done: str, *, old: Host.State, new: Host.State) -> None:
    """Change the state on request. All other changes of a host's state come from the reports of its executor."""
    is_changed = write_host_states(Host.objects.filter(name=name, state=old), new)
    host = Host.objects.get(name=name)
    if not is_changed:
        sentence = f"The host {name} is {host.state}: only a host that is {old} can {verb}."
        raise Conflict(sentence, code="stale_host")
    audit(actor, done, kind="host", key=host.pk, name=name, before={"state": old}, after={"state": new})


def retire_host(name: str) -> None:
    """Set a host that is gone for good to OFFLINE: it offers no slots until its executor reports again."""
    write_host_states(Host.objects.filter(name=name).exclude(state=Host.State.OFFLINE), Host.State.OFFLINE)


@transaction.atomic
def remove_host(name: str, actor: Actor) -> None:
    """Remove a host from the lists; its history stays.

    A host that has left comes back with the next report of its executor. A host that still reports comes back when its
    executor starts again; otherwise it would be back within a second.
    """
    hold(CLUSTER)
    host = Host.objects.get(name=name)
    refuse_removal(host)
    boot = host.boot if host.state == Host.State.DRAINING else ""
    known = Host.objects.filter(pk=host.pk, state=host.state, removed_at=None)
    write_host_states(known, Host.State.OFFLINE, removed_at=timezone.now(), removed_boot=boot, joined_at=None)
    expel(host)
    audit(actor, "removed", kind="host", key=host.pk, name=name, before={"state": host.state})


@transaction.atomic
def restore_host(name: str, actor: Actor) -> None:
    """Put a removed host back into the lists, in its former state."""
    hold(CLUSTER)
    host = Host.objects.get(name=name)
    if host.removed_at is None:
        raise Conflict(f"The host {name} is not removed: it has already come back.", code="stale_host")
    state = Host.State.DRAINING if host.removed_boot else Host.State.OFFLINE
    write_host_states(Host.objects.filter(pk=host.pk), state, removed_at=None, removed_boot="")
    restore(host)
    audit(actor, "restored", kind="host", key=host.pk, name=name, after={"state": state})


def refuse_removal(host: Host) -> None:
    """Raise Conflict, with the remedy, while the host is in service or trainings hold its GPUs."""
    if host.removed_at is not None:
        raise Conflict(f"The host {host.name} is already removed.", code="stale_host")
    held = held_slots(host)
    if held:
        gpus = plural(held, "{count} GPU of it is", "{count} GPUs of it are")
        what = "wait until they have moved off or finished" if host.state == Host.State.DRAINING else "drain it first"
        sentence = f"The host {host.name} cannot be removed: {gpus} held by trainings; {what}, or stop them."
        raise Conflict(sentence, code="in_use")
    if host.state == Host.State.ONLINE:
        sentence = f"The host {host.name} is in service: drain it first, and remove it once nothing runs there."
        raise Conflict(sentence, code="in_service")


@transaction.atomic
def write_host_states(known: QuerySet[Host], new: Host.State, **changes: Any) -> list[str]:
    """Set the state of these hosts, record their capacity and publish the change; return their names."""
    # Take locks in the global order (see `raise_revisions`): topics, then hosts by id.
    hold(CLUSTER)
    hosts = list(known.select_for_update().order_by("pk"))
    Host.objects.filter(pk__in=[host.pk for host in hosts]).update(state=new, **changes)
    now = timezone.now()
    for host in hosts:
        host.state = new
        record_capacity(host, now)
    names = [host.name for host in hosts]
    if names:
        publish(CLUSTER, "state", {"hosts": {name: {"state": str(new)} for name in names}})
    return names


def record_capacity(host: Host, at: datetime) -> None:
    """Record the number of slots that the host offers from now on, if it differs from before.

    The caller has changed the host's row in the same transaction, so no other writer is active.
    """
    slots = 0 if host.state == Host.State.OFFLINE else host.slots.filter(index__lt=host.ngpus, sick_since=None).count()
    newest = host.capacity_points.order_by("-at", "-id").values_list("slots", flat=True).first()
    if slots != (newest or 0):
        CapacityPoint.objects.create(host=host, at=at, slots=slots)


# --- resource groups --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ResourceGroupSpec:
    name: str
    slot_rule: str = "ngpus"
    kind: str = ResourceGroup.Kind.GPU
    selection: str = ResourceGroup.Selection.DYNAMIC
    description: str = ""
    #: Formula that the hosts of a dynamic selection meet; "": every host.
    requirement: str = ""
    #: Names of the hosts of a static selection.
    hosts: list[str] = field(default_factory=list)

    @property
    def offer(self) -> Offer:
        return Offer(self.slot_rule, self.kind, self.selection, self.requirement, frozenset(self.hosts))


def spec_of(group: ResourceGroup) -> ResourceGroupSpec:
    """Return the spec of a stored group."""
    return ResourceGroupSpec(
        name=group.name,
        slot_rule=group.slot_rule,
        kind=group.kind,
        selection=group.selection,
        description=group.description,
        requirement=group.requirement,
        hosts=sorted(group.hosts.values_list("name", flat=True)),
    )


@transaction.atomic
def create_resource_group(spec: ResourceGroupSpec, actor: Actor) -> ResourceGroup:
    spec, members = _checked(spec)
    group, is_new = ResourceGroup.objects.get_or_create(name=spec.name, defaults=_columns(spec))
    if not is_new:
        sentence = f"The resource group {spec.name!r} already exists."
        raise Conflict(sentence, code="name_taken", fields={"name": ["This name is taken."]})
    group.hosts.set(members)
    audit(actor, "created", kind=_GROUP, key=group.pk, name=group.name, after=_audited(spec))
    return group


@transaction.atomic
def change_resource_group(
    group: ResourceGroup,
    spec: ResourceGroupSpec,
    actor: Actor,
    *,
    expected: ResourceGroupSpec | None = None,
    seen: Seen = UNSEEN,
) -> ResourceGroupSpec:
    """Store all of `spec` except the name and the kind, which stay; return the former spec.

    seen: values that the user has seen, in the shape of `changeable_values`. Raises EditConflict or Outdated; Conflict
    if the group differs from `expected` by now, so that no other user's change is undone.
    """
    group = ResourceGroup.objects.select_for_update().get(pk=group.pk)
    before = spec_of(group)
    if expected is not None and before != expected:
        sentence = f"The resource group {group.name} has changed since: open it and change it there."
        raise Conflict(sentence, code="stale_group")
    present = changeable_values(before)
    wanted = seen.merged(changeable_values(spec), present, lambda: change_authors(group))
    spec, members = _checked(replace(before, **wanted))
    ResourceGroup.objects.filter(pk=group.pk).update(**_columns(spec))
    group.hosts.set(members)
    audit(actor, "changed", kind=_GROUP, key=group.pk, name=group.name, before=_audited(before), after=_audited(spec))
    return before


def changeable_values(spec: ResourceGroupSpec) -> dict[str, Any]:
    """Return the values that `change_resource_group` can change."""
    values = {name: value for name, value in asdict(spec).items() if name not in {"name", "kind"}}
    return values | {"hosts": sorted(spec.hosts)}


def change_authors(group: ResourceGroup) -> dict[str, Author]:
    """Return field -> author of its newest change."""
    return authors_of(_GROUP, group.pk)


@transaction.atomic
def delete_resource_group(group: ResourceGroup, actor: Actor) -> ResourceGroupSpec:
    """Delete the group and return its spec, from which it can be created again. Refused while it is in use."""
    before = spec_of(group)
    key = group.pk
    try:
        group.delete()
    except ProtectedError as error:
        users = ", ".join(sorted(map(str, error.protected_objects)))
        raise Conflict(
            f"The instance group {users} uses the resource group {group.name}: choose another one there first.",
            code="in_use",
        ) from None
    audit(actor, "deleted", kind=_GROUP, key=key, name=before.name, before=_audited(before))
    return before


def check_resource_group(spec: ResourceGroupSpec) -> None:
    """Validate the spec. Raises the errors of `create_resource_group`, except that of a name in use."""
    _checked(spec)


def _checked(spec: ResourceGroupSpec) -> tuple[ResourceGroupSpec, list[Host]]:
    """Return the spec to store and the hosts of a static selection. Raises UserError for a mistake."""
    for label, value, choices in (
        ("kind", spec.kind, ResourceGroup.Kind.values),
        ("selection", spec.selection, ResourceGroup.Selection.values),
    ):
        if value not in choices:
            raise field_error(label, f"The {label} must be {' or '.join(choices)}.")
    if len(spec.description) > _MAX_DESCRIPTION:
        raise field_error("description", f"Use at most {_MAX_DESCRIPTION} characters.")
    is_static = spec.selection == ResourceGroup.Selection.STATIC
    spec = replace(
        spec,
        name=checked_name(spec.name, limit=64),
        requirement="" if is_static or spec.requirement.isspace() else spec.requirement,
        hosts=sorted(set(spec.hosts)) if is_static else [],
    )
    listed = _listed(spec.hosts) if is_static else []
    if spec.requirement:
        _parsed("requirement", spec.requirement)
    _check_slot_rule(spec, listed if is_static else Host.objects.filter(removed_at=None))
    return spec, listed


def _listed(names: Sequence[str]) -> list[Host]:
    hosts = list(Host.objects.filter(name__in=names))
    unknown = sorted(set(names) - {host.name for host in hosts})
    if unknown or not hosts:
        what = f"There is no host {unknown[0][:100]!a}" if unknown else "A static group needs a host"
        raise field_error("hosts", f"{what}: name hosts that have reported.")
    return hosts


def _parsed(name: str, text: str) -> Formula:
    try:
        return parse(text)
    except FormulaError as error:
        raise field_error(name, f"The {name.replace('_', ' ')} cannot be used: {error}.") from error


def _check_slot_rule(spec: ResourceGroupSpec, hosts: Iterable[Host]) -> None:
    formula = _parsed("slot_rule", spec.slot_rule)
    for host in filter(spec.offer.takes, hosts):
        try:
            offered = formula.slots(attributes(host))
        except FormulaError as error:
            raise field_error("slot_rule", f"The slot rule cannot be used on {host.name}: {error}.") from error
        if spec.kind == ResourceGroup.Kind.GPU and offered > host.ngpus:
            has = plural(host.ngpus, "{count} GPU", "{count} GPUs")
            raise field_error(
                "slot_rule",
                f"The rule gives {offered} slots on {host.name}, which has {has}: use ngpus, or min(ngpus, {offered}).",
            )


def _columns(spec: ResourceGroupSpec) -> dict[str, Any]:
    return {name: value for name, value in asdict(spec).items() if name not in {"name", "hosts"}}


def _audited(spec: ResourceGroupSpec) -> dict[str, Any]:
    return {name: value for name, value in asdict(spec).items() if name != "name"}
