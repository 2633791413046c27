"""What an instance group is told by its administrators, term by term: its words, and who may change it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from jobs.models import InstanceGroup

__all__ = ["LINKS", "OF_GROUP_ADMINS", "TERMS", "Term", "changed_terms", "in_words", "terms_of"]


@dataclass(frozen=True)
class Term:
    #: Of InstanceGroup.
    column: str
    label: str
    #: Also a group's own administrators may change it.
    of_group_admins: bool = False
    #: "GPUs", "seconds" or "".
    unit: str = ""


TERMS: Final = (
    Term("description", "Description"),
    Term("resource_group", "Resource group for GPU slots"),
    Term("policy", "Policy", of_group_admins=True),
    Term("preemption", "Preemption", of_group_admins=True),
    Term("reclaim_grace_seconds", "Reclaim grace", of_group_admins=True, unit="seconds"),
    Term("minimum_run_seconds", "Minimum run time", of_group_admins=True, unit="seconds"),
    Term("quota", "Quota", unit="GPUs"),
    Term("weight", "Weight"),
    Term("borrows", "Borrows"),
    Term("lends", "Lends"),
    Term("default_priority", "Default priority", of_group_admins=True),
    Term("lowest_priority", "Lowest priority", of_group_admins=True),
    Term("highest_priority", "Highest priority", of_group_admins=True),
    Term("execution_user", "Execution user"),
    Term("deployment_directory", "Deployment directory"),
    Term("members", "Members", of_group_admins=True),
    Term("admins", "Group administrators"),
)
OF_GROUP_ADMINS: Final = frozenset(term.column for term in TERMS if term.of_group_admins)
#: Columns that are sets of users.
LINKS: Final = ("members", "admins")

_POLICIES = {
    InstanceGroup.Policy.FAIRSHARE: "fair share",
    InstanceGroup.Policy.PRIORITY: "priority",
    InstanceGroup.Policy.FIFO: "first come, first served",
}
_NOTHING = {"quota": "no quota", "members": "everybody", "admins": "nobody"}


def terms_of(group: InstanceGroup) -> dict[str, Any]:
    """Every term as JSON has it: the resource group and users by name."""
    values = {term.column: getattr(group, term.column) for term in TERMS if term.column not in LINKS}
    values["resource_group"] = group.resource_group.name
    for column in LINKS:
        values[column] = sorted(user.get_username() for user in getattr(group, column).all())
    return values


def changed_terms(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """A phrase for each term that is another one: "quota from 4 GPUs to 6 GPUs"."""
    return [
        f"{_small(term.label)} from {in_words(term.column, before[term.column])} "
        f"to {in_words(term.column, after[term.column])}"
        for term in TERMS
        if term.column in after and before[term.column] != after[term.column]
    ]


def in_words(column: str, value: Any) -> str:
    """One term's value as sentences have it."""
    if value is None or value == []:
        return _NOTHING[column]
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list):
        return ", ".join(value)
    if column == "policy":
        return _POLICIES[value]
    if value == "":
        return "nothing"
    if column == "quota":
        return f"{value} GPU" if value == 1 else f"{value} GPUs"
    return f"{value} s" if column.endswith("_seconds") else str(value)


def _small(label: str) -> str:
    return label[0].lower() + label[1:]
