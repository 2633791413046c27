"""Creates, changes and deletes resource groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import ProtectedError

from core.audit.entries import audit
from core.errors import Conflict, field_error
from core.names import checked_name
from workers.models import Host, ResourceGroup
from workers.offers import Offer, attributes
from workers.slot_formula import FormulaError, parse

__all__ = [
    "ResourceGroupSpec",
    "change_resource_group",
    "check_resource_group",
    "create_resource_group",
    "delete_resource_group",
    "spec_of",
]

_KIND = "resource group"
_MAX_DESCRIPTION = 200
Actor = AbstractBaseUser | str


@dataclass(frozen=True)
class ResourceGroupSpec:
    name: str
    slot_rule: str = "ngpus"
    kind: str = ResourceGroup.Kind.GPU
    selection: str = ResourceGroup.Selection.DYNAMIC
    description: str = ""
    #: Of a dynamic selection; "": every host.
    requirement: str = ""
    #: Names; for a static selection only.
    hosts: list[str] = field(default_factory=list)

    @property
    def offer(self) -> Offer:
        return Offer(self.slot_rule, self.kind, self.selection, self.requirement, frozenset(self.hosts))


def spec_of(group: ResourceGroup) -> ResourceGroupSpec:
    """As it is stored."""
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
        raise Conflict(f"There is a resource group {spec.name!r} already.", fields={"name": ["This name is taken."]})
    group.hosts.set(members)
    audit(actor, "created", kind=_KIND, key=group.pk, name=group.name, after=_told(spec))
    return group


@transaction.atomic
def change_resource_group(
    group: ResourceGroup, spec: ResourceGroupSpec, actor: Actor, *, expected: ResourceGroupSpec | None = None
) -> ResourceGroupSpec:
    """Store all of `spec` but the name and the kind, which stay; returns what it was before.

    Refused where it is another one than `expected` by now: somebody else's change is not undone by the way.
    """
    group = ResourceGroup.objects.select_for_update().get(pk=group.pk)
    before = spec_of(group)
    if expected is not None and before != expected:
        raise Conflict(f"The resource group {group.name} was changed again since: look at it, and change it there.")
    spec, members = _checked(replace(spec, name=before.name, kind=before.kind))
    ResourceGroup.objects.filter(pk=group.pk).update(**_columns(spec))
    group.hosts.set(members)
    audit(actor, "changed", kind=_KIND, key=group.pk, name=group.name, before=_told(before), after=_told(spec))
    return before


@transaction.atomic
def delete_resource_group(group: ResourceGroup, actor: Actor) -> ResourceGroupSpec:
    """Returns what it was, of which it can be made again. Refused while an instance group uses it."""
    before = spec_of(group)
    key = group.pk
    try:
        group.delete()
    except ProtectedError as error:
        users = ", ".join(sorted(map(str, error.protected_objects)))
        raise Conflict(
            f"The resource group {group.name} is used by the instance group {users}: give that one another first."
        ) from None
    audit(actor, "deleted", kind=_KIND, key=key, name=before.name, before=_told(before))
    return before


def check_resource_group(spec: ResourceGroupSpec) -> None:
    """Raises what creating it would, but for a name that is taken."""
    _checked(spec)


def _checked(spec: ResourceGroupSpec) -> tuple[ResourceGroupSpec, list[Host]]:
    """The spec as it is stored and, of a static selection, its hosts; or the error of what does not fit."""
    for label, value, choices in (
        ("kind", spec.kind, ResourceGroup.Kind.values),
        ("selection", spec.selection, ResourceGroup.Selection.values),
    ):
        if value not in choices:
            raise field_error(label, f"There is no such {label}: use {' or '.join(choices)}.")
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
    _check_requirement(spec.requirement)
    _check_rule(spec, listed if is_static else Host.objects.filter(removed_at=None))
    return spec, listed


def _listed(names: Sequence[str]) -> list[Host]:
    hosts = list(Host.objects.filter(name__in=names))
    unknown = sorted(set(names) - {host.name for host in hosts})
    if unknown or not hosts:
        what = f"There is no host {unknown[0][:100]!a}" if unknown else "A static group needs a host"
        raise field_error("hosts", f"{what}: name hosts that have reported.")
    return hosts


def _check_requirement(requirement: str) -> None:
    if not requirement:
        return
    try:
        parse(requirement)
    except FormulaError as error:
        raise field_error("requirement", f"The requirement cannot be used: {error}.") from error


def _check_rule(spec: ResourceGroupSpec, hosts: Sequence[Host] | Any) -> None:
    try:
        formula = parse(spec.slot_rule)
    except FormulaError as error:
        raise field_error("slot_rule", f"The slot rule cannot be used: {error}.") from error
    offer = spec.offer
    for host in hosts:
        if not offer.takes(host):
            continue
        try:
            offered = formula.slots(attributes(host))
        except FormulaError as error:
            raise field_error("slot_rule", f"The slot rule cannot be used on {host.name}: {error}.") from error
        if spec.kind == ResourceGroup.Kind.GPU and offered > host.ngpus:
            raise field_error("slot_rule", _too_many(offered, host))


def _too_many(offered: int, host: Host) -> str:
    has = "1 GPU" if host.ngpus == 1 else f"{host.ngpus} GPUs"
    return f"The rule gives {offered} slots on {host.name}, which has {has}: use ngpus, or min(ngpus, {offered})."


def _columns(spec: ResourceGroupSpec) -> dict[str, Any]:
    return {name: value for name, value in asdict(spec).items() if name not in {"name", "hosts"}}


def _told(spec: ResourceGroupSpec) -> dict[str, Any]:
    return {name: value for name, value in asdict(spec).items() if name != "name"}
