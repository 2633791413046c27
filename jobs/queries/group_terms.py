"""Terms of an instance group, each declared once: labels, limits, and who may change them.

The fields of the form and the API, and the checks of the action, are derived from `TERMS` and the columns' types.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.db import models

from jobs.models import InstanceGroup
from jobs.options import MAX_PRIORITY
from jobs.words import gpus

__all__ = ["LINKS", "OF_GROUP_ADMINS", "TERMS", "Term", "changed_terms", "in_words", "terms_of"]


_DAY: Final = 24 * 3600


@dataclass(frozen=True)
class Term:
    #: Column of InstanceGroup.
    column: str
    label: str
    help: str = ""
    #: Whether the group's own administrators may change it, too.
    of_group_admins: bool = False
    #: "GPUs", "seconds" or "".
    unit: str = ""
    #: Limits of a whole number.
    least: int = 0
    most: int = 0

    @property
    def field(self) -> "models.Field[Any, Any]":
        """Return the model field, whose type is also the term's."""
        field = InstanceGroup._meta.get_field(self.column)
        assert isinstance(field, models.Field)
        return field

    @property
    def name(self) -> str:
        """Return the label with a lower-case first letter, for use within a sentence."""
        return self.label[0].lower() + self.label[1:]


def _priority(column: str, label: str, help: str) -> Term:
    return Term(column, label, help, of_group_admins=True, least=1, most=MAX_PRIORITY)


_RECORDED: Final = "Recorded. It has no effect."

TERMS: Final = (
    Term("description", "Description"),
    Term(
        "resource_group",
        "Resource group for GPU slots",
        "The GPUs that its trainings may use. Several instance groups may share a resource group.",
    ),
    Term("policy", "Policy", "How its trainings divide its GPUs.", of_group_admins=True),
    Term(
        "aim",
        "Aim of goodput",
        "Goal of the division: early ends, equal speed-ups, or priority for trainings with little usage so far.",
        of_group_admins=True,
    ),
    Term(
        "gpu_weights",
        "Weights of GPU models",
        "What one GPU of a model counts in a fair share, such as A100=4, T4=1: then each training uses GPUs of one "
        "model, and shares are counted in weights. Other models count 1. Empty: models do not matter.",
        of_group_admins=True,
    ),
    Term(
        "preemption",
        "Preemption",
        "Whether running trainings may lose GPUs to others. They shrink while running if that is enough. First come, "
        "first served takes none from them.",
        of_group_admins=True,
    ),
    Term(
        "reclaim_grace_seconds",
        "Reclaim grace",
        "Time that a training has to end when it is stopped for others. Shrinking only takes one step.",
        of_group_admins=True,
        unit="seconds",
        most=_DAY,
    ),
    Term(
        "minimum_run_seconds",
        "Minimum run time",
        "Time for which a training runs before it may be stopped for others. It may be shrunk at any time.",
        of_group_admins=True,
        unit="seconds",
        most=30 * _DAY,
    ),
    Term(
        "idle_after_seconds",
        "Warn of idle GPUs after",
        "Time for which a training makes no step and uses none of its GPUs. 0: nobody is warned.",
        of_group_admins=True,
        unit="seconds",
        most=30 * _DAY,
    ),
    Term(
        "idle_grace_seconds",
        "Idle grace",
        "Time after the warning, and again after shrinking, if idle GPUs are reclaimed.",
        of_group_admins=True,
        unit="seconds",
        most=30 * _DAY,
    ),
    Term(
        "idle_reclaims",
        "Reclaims idle GPUs",
        "Whether an idle training shrinks to its minimum after the grace, and is later suspended with a checkpoint.",
        of_group_admins=True,
    ),
    Term(
        "least_isolation",
        "Least isolation",
        "What a host has to keep trainings apart by: walls, users of their own as well, or sealed with limits and "
        "their own GPUs alone besides. Trainings wait rather than run on other hosts.",
    ),
    Term(
        "quota",
        "Quota",
        "GPUs that the group gets whenever it needs them. Empty: no quota; it only uses spare GPUs.",
        unit="GPUs",
        most=1_000_000,
    ),
    Term(
        "weight",
        "Weight",
        "Share of the GPUs beyond all quotas: twice the weight, twice the GPUs. 0: the group only uses its quota.",
        most=10_000,
    ),
    Term("borrows", "Borrows", "Whether the group may use more than its quota while other groups do not use theirs."),
    Term("lends", "Lends", "Whether other groups may use the free part of its quota until the group needs it."),
    _priority("default_priority", "Default priority", "Priority of trainings that do not set one."),
    _priority("lowest_priority", "Lowest priority", f"1 to {MAX_PRIORITY:,}."),
    _priority("highest_priority", "Highest priority", f"1 to {MAX_PRIORITY:,}."),
    Term("execution_user", "Execution user", _RECORDED),
    Term("deployment_directory", "Deployment directory", f"{_RECORDED} Nothing is installed on the hosts."),
    Term("members", "Members", "Users who may submit to the group. Empty: all users.", of_group_admins=True),
    Term("admins", "Group administrators", "Users who may change policy, preemption, times, priorities and members."),
)
OF_GROUP_ADMINS: Final = frozenset(term.column for term in TERMS if term.of_group_admins)
#: Columns that are sets of users.
LINKS: Final = ("members", "admins")

_POLICIES = {
    InstanceGroup.Policy.FAIRSHARE: "fair share",
    InstanceGroup.Policy.PRIORITY: "priority",
    InstanceGroup.Policy.FIFO: "first come, first served",
    InstanceGroup.Policy.GOODPUT: "goodput",
}
_AIMS = {
    InstanceGroup.Aim.SOON: "early ends",
    InstanceGroup.Aim.EVEN: "even speed-ups",
    InstanceGroup.Aim.USED: "least usage first",
}
_ISOLATION = {
    InstanceGroup.Isolation.ANY: "any",
    InstanceGroup.Isolation.WALLED: "walls",
    InstanceGroup.Isolation.SEPARATE: "users of their own",
    InstanceGroup.Isolation.SEALED: "sealed",
}
_IN_WORDS: dict[str, Mapping[Any, str]] = {"policy": _POLICIES, "aim": _AIMS, "least_isolation": _ISOLATION}
_NOTHING = {"quota": "no quota", "members": "everybody", "admins": "nobody"}


def terms_of(group: InstanceGroup) -> dict[str, Any]:
    """Return all terms as JSON values, with the resource group and users by name."""
    values = {term.column: getattr(group, term.column) for term in TERMS if term.column not in LINKS}
    values["resource_group"] = group.resource_group.name
    for column in LINKS:
        values[column] = sorted(user.get_username() for user in getattr(group, column).all())
    return values


def changed_terms(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return a phrase for each changed term: "quota from 4 GPUs to 6 GPUs"."""
    return [
        f"{term.name} from {in_words(term.column, before[term.column])} to {in_words(term.column, after[term.column])}"
        for term in TERMS
        if term.column in after and before[term.column] != after[term.column]
    ]


def in_words(column: str, value: Any) -> str:
    """Return a term's value as words."""
    if value is None or value == []:
        return _NOTHING[column]
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list):
        return ", ".join(value)
    if column in _IN_WORDS:
        return _IN_WORDS[column][value]
    if value == "":
        return "nothing"
    if column == "quota":
        return gpus(value)
    return f"{value} s" if column.endswith("_seconds") else str(value)
