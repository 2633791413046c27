"""Create, change, start, stop and delete instance groups. `jobs.queries.group_terms` has the permissions per term."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from django.contrib.auth.models import User
from django.db import IntegrityError, models, transaction

from core.audit.authors import authors_of
from core.audit.entries import audit
from core.edits import UNSEEN, Author, Seen
from core.errors import Conflict, NotAllowed, existing, name_taken
from core.live import publish
from core.registered_rows import in_words, kept_if_used
from core.roles import require_cluster_admin
from jobs.actions.submission_checks import Problems
from jobs.control.dispatch import wake_scheduler
from jobs.gpu_weights import as_text, weights_of
from jobs.models import InstanceGroup
from jobs.queries.group_terms import LINKS, TERMS, Term, changed_terms, terms_of
from jobs.queries.groups import deployment, required_terms
from jobs.topics import GROUPS
from jobs.words import trainings
from workers.models import ResourceGroup
from workers.queries import find_resource_group

__all__ = [
    "PRESETS",
    "GroupChange",
    "InstanceGroupSpec",
    "Preset",
    "change_authors",
    "change_instance_group",
    "check_change",
    "create_and_deploy",
    "create_instance_group",
    "delete_instance_group",
    "deploy_instance_group",
    "find_preset",
    "start_instance_group",
    "stop_instance_group",
    "terms_as_usual",
]

_STATE = InstanceGroup.State
_COLUMNS = frozenset(term.column for term in TERMS)
_MOST_USERS: Final = 10_000


@dataclass(frozen=True)
class Preset:
    name: str
    label: str
    words: str
    #: Columns of InstanceGroup that the preset sets; other columns have their defaults.
    terms: Mapping[str, Any]
    #: Names of the equivalent templates of WMLA.
    wmla_names: tuple[str, ...] = ()


PRESETS: Final = (
    Preset(
        "elastic-fair-share",
        "Elastic distributed training: fair share with preemption",
        "Trainings share the GPUs in proportion to their priorities, and shrink and grow live as others come and go. "
        "No training is stopped for another.",
        {"policy": "fairshare", "preemption": True},
        ("dli-sig-template-2-2-0", "dli-sig-template-2-3-3", "wmla-ig-edt-template-2.3.3"),
    ),
    Preset(
        "priority",
        "Priority with preemption",
        "The training with the higher priority gets all GPUs that it requests. Others shrink for it, or stop with a "
        "checkpoint and resume later, but not before they have run for five minutes.",
        {"policy": "priority", "preemption": True, "minimum_run_seconds": 300},
    ),
    Preset(
        "first-come",
        "First come, first served",
        "The training that was submitted first gets all GPUs that it asks for; others wait until it is done. Running "
        "trainings keep their GPUs.",
        {"policy": "fifo", "preemption": False},
    ),
    Preset(
        "goodput",
        "Goodput: GPUs where they speed up training most",
        "Each training is measured while it runs, and GPUs go where they speed up the work of all most. A training "
        "with little work left ends sooner; no training is stopped for another.",
        {"policy": "goodput", "preemption": True},
    ),
)  # fmt: skip


def find_preset(name: str) -> Preset | None:
    """Return the preset of this name, or of a WMLA template's name; None if there is none."""
    return next((preset for preset in PRESETS if name == preset.name or name in preset.wmla_names), None)


@dataclass(frozen=True)
class InstanceGroupSpec:
    name: str
    #: Id or name of the resource group whose GPUs its jobs may use.
    resource_group: int | str
    #: Name of a preset, ours or WMLA's, or "". `terms` override the preset.
    template: str = ""
    #: Other terms of `jobs.queries.group_terms.TERMS`, users by name. Missing terms have their defaults.
    terms: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class GroupChange:
    group: InstanceGroup
    #: Terms that changed, as JSON values.
    before: dict[str, Any]
    after: dict[str, Any]

    @property
    def phrases(self) -> list[str]:
        return changed_terms(self.before, self.after)


def create_instance_group(spec: InstanceGroupSpec, actor: User | str, *, start: bool = False) -> InstanceGroup:
    """Register an instance group. It takes no trainings before it is started, which `start` does at once.

    actor: an administrator, or the name of the part of Tidepool that creates the group.
    """
    if not isinstance(actor, str):
        require_cluster_admin(actor)
    problems = Problems()
    name = problems.checked_name(spec.name, limit=64)
    preset = find_preset(spec.template)
    if spec.template and preset is None:
        names = ", ".join(preset.name for preset in PRESETS)
        problems.add("template", f"Template {spec.template[:80]!a} not found: use {names}.")
    given = {**(preset.terms if preset else {}), **spec.terms, "resource_group": spec.resource_group}
    columns = _checked_terms(problems, given, terms_as_usual())
    problems.raise_if_any()
    links = {link: columns.pop(link) for link in LINKS if link in columns}
    state = _STATE.STARTED if start else _STATE.REGISTERED
    with transaction.atomic():
        try:
            with transaction.atomic():
                template = preset.name if preset else ""
                group = InstanceGroup.objects.create(name=name, state=state, template=template, **columns)
        except IntegrityError:
            raise name_taken("Instance group", name) from None
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
    """Return the default terms of a group."""
    fresh = InstanceGroup()
    plain = {column: getattr(fresh, column) for column in _COLUMNS - {"resource_group", *LINKS}}
    return {**plain, "resource_group": "", **{link: [] for link in LINKS}}


@transaction.atomic
def change_instance_group(
    group_id: int, given: Mapping[str, Any], actor: User, *, revision: int | None = None, seen: Seen = UNSEEN
) -> GroupChange:
    """Change all of these terms or none.

    revision: refuse if the group has a newer revision. seen: terms that the user has seen, in the shape of `terms_of`.
    Raises EditConflict or Outdated.
    """
    group = _lock(group_id)
    _refuse_foreign_terms(group, given, actor)
    before = terms_of(group)
    given = seen.merged(given, before, lambda: change_authors(group))
    columns = check_change(group, given, actor, revision=revision)
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


def change_authors(group: InstanceGroup) -> dict[str, Author]:
    """Return term -> author of its newest change."""
    return authors_of("instance group", group.pk)


def check_change(
    group: InstanceGroup, given: Mapping[str, Any], actor: User, *, revision: int | None = None
) -> dict[str, Any]:
    """Return the given columns, with rows for names. Raises UserError with a sentence for each invalid term."""
    _refuse_foreign_terms(group, given, actor)
    if revision is not None and revision != group.revision:
        raise Conflict(
            f"{group.name} has been changed since you read it: read it again, and compare your values with its terms.",
            code="stale_group",
        )
    problems = Problems()
    columns = _checked_terms(problems, given, terms_of(group))
    problems.raise_if_any()
    return columns


def _refuse_foreign_terms(group: InstanceGroup, given: Mapping[str, Any], actor: User) -> None:
    allowed = required_terms(actor, group)
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
        raise Conflict(f"{group.name} is already deployed.")
    return _change_state(group, _STATE.STOPPED, actor, "deployed")


@transaction.atomic
def start_instance_group(group_id: int, actor: User) -> InstanceGroup:
    """Start the group, so that its trainings can start. Raise Conflict if none of its hosts is ready."""
    require_cluster_admin(actor)
    group = _lock(group_id)
    if group.state == _STATE.STARTED:
        raise Conflict(f"{group.name} is already started.")
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
    """Refuse new trainings and start no waiting ones; running ones continue."""
    require_cluster_admin(actor)
    group = _lock(group_id)
    if group.state != _STATE.STARTED:
        raise Conflict(f"{group.name} is not started, so it cannot be stopped.")
    return _change_state(group, _STATE.STOPPED, actor, "stopped")


@transaction.atomic
def delete_instance_group(group_id: int, actor: User) -> InstanceGroup:
    """Delete the group. Raises Conflict if it has studies, or trainings, whose cost is accounted by group."""
    require_cluster_admin(actor)
    group = _lock(group_id)
    if count := group.jobs.count():
        raise Conflict(
            f"{group.name} has {trainings(count)}, whose records refer to it: stop it instead of deleting it.",
            code="in_use",
        )
    audit(actor, "deleted", **_about(group), before=terms_of(group))
    publish(GROUPS, "state", {str(group.pk): None})

    def refusal(users: Collection[Any]) -> str:
        # Rows of apps above this one, such as studies.
        return f"{group.name} is the group of {in_words(users, actor)}: stop the group instead of deleting it."

    with kept_if_used(refusal):
        InstanceGroup.objects.filter(pk=group.pk).delete()
    return group


def _change_state(group: InstanceGroup, new: InstanceGroup.State, actor: User, verb: str) -> InstanceGroup:
    audit(actor, verb, **_about(group), before={"state": group.state}, after={"state": new})
    group.state, group.revision = new.value, group.revision + 1
    group.save(update_fields=["state", "revision"])
    _announce(group)
    return group


def _lock(group_id: int) -> InstanceGroup:
    groups = InstanceGroup.objects.select_related("resource_group").select_for_update(of=("self",))
    return existing(groups.filter(pk=group_id).first(), f"instance group {group_id}")


def _about(group: InstanceGroup) -> dict[str, Any]:
    return {"kind": "instance group", "key": group.pk, "name": group.name}


def _announce(group: InstanceGroup) -> None:
    """Notify open pages and the scheduler of the change."""
    publish(GROUPS, "state", {str(group.pk): group.revision})
    wake_scheduler()


def _checked_terms(problems: Problems, given: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given terms as column values, with rows for names. `now`: the current terms."""
    terms = {term.column: term for term in TERMS}
    checked = {column: _checked(problems, terms[column], value) for column, value in given.items()}
    _check_priorities(problems, {**now, **given})
    _check_weight(problems, {**now, **given})
    return checked


def _checked(problems: Problems, term: Term, value: Any) -> Any:
    column = term.field
    match column:
        case models.BooleanField():
            if not isinstance(value, bool):
                problems.add(term.column, "The value must be true or false.")
        case models.IntegerField():
            is_number = isinstance(value, int) and not isinstance(value, bool) and term.least <= value <= term.most
            if not is_number and not (column.null and value is None):
                sentence = f"The {term.name} must be a whole number from {term.least} to {term.most:,}."
                problems.add(term.column, sentence)
        case models.ForeignKey():
            return _found_resource_group(problems, value)
        case models.ManyToManyField():
            return _found_users(problems, term.column, value)
        case _ if column.choices:
            known = [str(choice) for choice, _ in column.flatchoices]
            if value not in known:
                problems.add(term.column, f"{term.label} must be one of {', '.join(known)}.")
        case models.CharField():
            text = _checked_text(problems, column, value)
            return _checked_weights(problems, text) if column.name == "gpu_weights" else text
    return value


def _checked_text(problems: Problems, column: "models.CharField[str, str]", value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable() or len(value) > (column.max_length or 0):
        problems.add(column.name, f"Use at most {column.max_length} letters, digits and punctuation, on one line.")
        return ""
    if value and column.name == "deployment_directory" and not value.startswith("/"):
        problems.add(column.name, "Enter an absolute path, which begins with a slash.")
    return value.strip()


def _checked_weights(problems: Problems, text: str) -> str:
    try:
        return as_text(weights_of(text))
    except ValueError as error:
        problems.add("gpu_weights", str(error))
        return ""


def _check_priorities(problems: Problems, terms: Mapping[str, Any]) -> None:
    columns = ("lowest_priority", "default_priority", "highest_priority")
    if problems.fields.keys() & set(columns):
        return
    lowest, default, highest = (terms[column] for column in columns)
    if lowest > highest:
        problems.add("highest_priority", f"The highest priority is {highest}, below the lowest one, {lowest}.")
    elif not lowest <= default <= highest:
        problems.add(
            "default_priority", f"The default priority, {default}, must lie between {lowest} and {highest}: change it."
        )


def _check_weight(problems: Problems, terms: Mapping[str, Any]) -> None:
    if terms["weight"] == 0 and terms["quota"] is None:
        problems.add("weight", "With weight 0, a group uses its quota only: set a quota or a weight.")


def _found_resource_group(problems: Problems, reference: Any) -> ResourceGroup | None:
    is_reference = isinstance(reference, int | str) and not isinstance(reference, bool)
    group = find_resource_group(reference) if is_reference else None
    if group is None or group.kind != ResourceGroup.Kind.GPU:
        problems.add("resource_group", "No resource group with GPUs has this name: choose one from the list.")
        return None
    return group


def _found_users(problems: Problems, column: str, names: Any) -> list[User]:
    is_list = isinstance(names, Iterable) and not isinstance(names, str | Mapping)
    wanted = list(dict.fromkeys(names)) if is_list and all(isinstance(name, str) for name in names) else None
    if wanted is None or len(wanted) > _MOST_USERS:
        problems.add(column, "Give a list of user names.")
        return []
    storable = [name for name in wanted if name.isprintable()]
    users = {user.get_username(): user for user in User.objects.filter(username__in=storable)}
    for name in wanted:
        if name not in users:
            problems.add(column, f"User {name[:80]!a} not found: check the spelling.")
    return list(users.values())
