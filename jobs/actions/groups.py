"""Create, change, start, stop and delete instance groups. `jobs.queries.group_terms` says who may change which term."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import F

from core.audit.entries import audit
from core.errors import Conflict, NotAllowed, NotFound
from core.live import GROUPS, publish
from core.roles import require_cluster_admin
from jobs.actions.checks import Problems
from jobs.actions.group_checks import checked_terms
from jobs.actions.group_presets import PRESETS, find_preset
from jobs.control.wake import wake_scheduler
from jobs.models import InstanceGroup
from jobs.queries.deployment import deployment
from jobs.queries.group_terms import LINKS, TERMS, changed_terms, terms_of
from jobs.queries.groups import changeable_terms

__all__ = [
    "GroupChange",
    "InstanceGroupSpec",
    "change_instance_group",
    "check_change",
    "create_and_deploy",
    "create_instance_group",
    "delete_instance_group",
    "deploy_instance_group",
    "start_instance_group",
    "stop_instance_group",
]

_STATE = InstanceGroup.State
_COLUMNS = frozenset(term.column for term in TERMS)


@dataclass(frozen=True)
class InstanceGroupSpec:
    name: str
    #: Id or name of the group of GPUs that its jobs may use.
    resource_group: int | str
    #: Name of a preset, here or of WMLA; "": none. What it says holds where `terms` says nothing.
    template: str = ""
    #: Others of `jobs.queries.group_terms.TERMS`, users by name; as usual where nothing is given.
    terms: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class GroupChange:
    group: InstanceGroup
    #: The terms that changed, as JSON has them.
    before: dict[str, Any]
    after: dict[str, Any]

    @property
    def phrases(self) -> list[str]:
        return changed_terms(self.before, self.after)


def create_instance_group(spec: InstanceGroupSpec, actor: User | str, *, start: bool = False) -> InstanceGroup:
    """Register an instance group. Without `start` it takes no trainings until it is started.

    actor: an administrator, or the name of the part of Tidepool that makes it.
    """
    if not isinstance(actor, str):
        require_cluster_admin(actor)
    problems = Problems()
    name = problems.checked_name(spec.name, limit=64)
    preset = find_preset(spec.template)
    if spec.template and preset is None:
        names = ", ".join(preset.name for preset in PRESETS)
        problems.add("template", f"There is no template {spec.template[:80]!a}: use {names}.")
    given = {**(preset.terms if preset else {}), **spec.terms, "resource_group": spec.resource_group}
    columns = checked_terms(problems, given, terms_as_usual())
    problems.raise_if_any()
    links = {link: columns.pop(link) for link in LINKS if link in columns}
    state = _STATE.STARTED if start else _STATE.REGISTERED
    with transaction.atomic():
        try:
            with transaction.atomic():
                template = preset.name if preset else ""
                group = InstanceGroup.objects.create(name=name, state=state, template=template, **columns)
        except IntegrityError:
            sentence = f"There is an instance group “{name}” already: take another name."
            raise Conflict(sentence, fields={"name": [sentence]}) from None
        for link, users in links.items():
            getattr(group, link).set(users)
        audit(actor, "created", **_about(group), after={**terms_of(group), "state": group.state})
        _announce(group)
    return group


def create_and_deploy(spec: InstanceGroupSpec, actor: User) -> InstanceGroup:
    """Register an instance group and start it; it stays registered if none of its hosts is ready."""
    group = create_instance_group(spec, actor)
    try:
        return start_instance_group(group.pk, actor)
    except Conflict:
        return group


def terms_as_usual() -> dict[str, Any]:
    """Return the terms of a group that sets none."""
    fresh = InstanceGroup()
    plain = {column: getattr(fresh, column) for column in _COLUMNS - {"resource_group", *LINKS}}
    return {**plain, "resource_group": "", **{link: [] for link in LINKS}}


@transaction.atomic
def change_instance_group(
    group_id: int, given: Mapping[str, Any], actor: User, *, revision: int | None = None
) -> GroupChange:
    """Change all of these terms or none. `revision`: refuse if the group has been changed since that revision."""
    group = _lock(group_id)
    columns = check_change(group, given, actor, revision=revision)
    before = terms_of(group)
    for link in LINKS:
        if link in columns:
            getattr(group, link).set(columns[link])
    for column, value in columns.items():
        if column not in LINKS:
            setattr(group, column, value)
    after = terms_of(group)
    changed = [column for column in before if before[column] != after[column]]
    change = GroupChange(group, {name: before[name] for name in changed}, {name: after[name] for name in changed})
    if changed:
        group.revision += 1
        group.save(update_fields=["revision", *(column for column in changed if column not in LINKS)])
        audit(actor, "changed", **_about(group), before=before, after=after)
        _announce(group)
    return change


def check_change(
    group: InstanceGroup, given: Mapping[str, Any], actor: User, *, revision: int | None = None
) -> dict[str, Any]:
    """Return the given columns, with rows for names. Raises UserError for everything that does not fit."""
    _refuse_foreign_terms(group, given, actor)
    if revision is not None and revision != group.revision:
        raise Conflict(
            f"{group.name} has been changed since you opened this form. Your entries are still here: compare them with "
            "what holds now, and save again.",
            code="stale_group",
        )
    problems = Problems()
    columns = checked_terms(problems, given, terms_of(group))
    problems.raise_if_any()
    return columns


def _refuse_foreign_terms(group: InstanceGroup, given: Mapping[str, Any], actor: User) -> None:
    allowed = changeable_terms(actor, group)
    if not allowed:
        raise NotAllowed(f"Only administrators of {group.name} and of the cluster may change it: ask one.")
    foreign = [term for term in TERMS if term.column in given and term.column not in allowed]
    if foreign:
        sentence = "Only an administrator of the cluster may change this: ask one."
        raise NotAllowed(
            f"{foreign[0].label}: {sentence[0].lower()}{sentence[1:]}",
            fields={term.column: [sentence] for term in foreign},
        )


@transaction.atomic
def deploy_instance_group(group_id: int, actor: User) -> InstanceGroup:
    """Move a registered group to stopped. Nothing is installed, so this cannot fail."""
    require_cluster_admin(actor)
    group = _lock(group_id)
    if group.state != _STATE.REGISTERED:
        raise Conflict(f"{group.name} is deployed already.")
    return _change_state(group, _STATE.STOPPED, actor, "deployed")


@transaction.atomic
def start_instance_group(group_id: int, actor: User) -> InstanceGroup:
    """Let its trainings begin. Refused if none of its hosts is ready."""
    require_cluster_admin(actor)
    group = _lock(group_id)
    if group.state == _STATE.STARTED:
        raise Conflict(f"{group.name} is started already.")
    found = deployment(group.resource_group)
    if not found.ready:
        raise Conflict(
            f"{group.name} cannot be started: {found.text} Start the executors of its hosts, or give it another "
            "resource group.",
            code="not_deployed",
        )
    return _change_state(group, _STATE.STARTED, actor, "started")


@transaction.atomic
def stop_instance_group(group_id: int, actor: User) -> InstanceGroup:
    """Take no more trainings and start none that waits; those that run go on."""
    require_cluster_admin(actor)
    group = _lock(group_id)
    if group.state != _STATE.STARTED:
        raise Conflict(f"{group.name} is not started: there is nothing to stop.")
    return _change_state(group, _STATE.STOPPED, actor, "stopped")


@transaction.atomic
def delete_instance_group(group_id: int, actor: User) -> InstanceGroup:
    """Delete the group. Refused if it has trainings, over or not: their cost is counted by group."""
    require_cluster_admin(actor)
    group = _lock(group_id)
    count = group.jobs.count()
    if count:
        trainings = "1 training" if count == 1 else f"{count} trainings"
        raise Conflict(f"{group.name} has {trainings}, over or not, and stays for their record: stop it instead.")
    audit(actor, "deleted", **_about(group), before=terms_of(group))
    publish(GROUPS, "state", {str(group.pk): None})
    InstanceGroup.objects.filter(pk=group.pk).delete()
    return group


def _change_state(group: InstanceGroup, new: InstanceGroup.State, actor: User, verb: str) -> InstanceGroup:
    audit(actor, verb, **_about(group), before={"state": group.state}, after={"state": new})
    changed = InstanceGroup.objects.filter(pk=group.pk, state=group.state).update(state=new, revision=F("revision") + 1)
    assert changed == 1, "the row is locked"
    group.refresh_from_db(fields=["state", "revision"])
    _announce(group)
    return group


def _lock(group_id: int) -> InstanceGroup:
    groups = InstanceGroup.objects.select_related("resource_group").select_for_update(of=("self",))
    group = groups.filter(pk=group_id).first()
    if group is None:
        raise NotFound(f"There is no instance group {group_id}: look it up in the list.")
    return group


def _about(group: InstanceGroup) -> dict[str, Any]:
    return {"kind": "instance group", "key": group.pk, "name": group.name}


def _announce(group: InstanceGroup) -> None:
    """Tell open pages and the scheduler that the group has changed."""
    publish(GROUPS, "state", {str(group.pk): group.revision})
    wake_scheduler()
