"""Checks of an instance group's terms. All mistakes are reported at once, term by term."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from django.contrib.auth.models import User

from jobs.actions.checks import Problems
from jobs.models import InstanceGroup
from jobs.options import MAX_PRIORITY
from jobs.queries.group_terms import LINKS, TERMS
from workers.models import ResourceGroup
from workers.queries import find_resource_group

__all__ = ["checked_terms"]

_DAY: Final = 24 * 3600
#: Column -> least, most, and how a sentence calls it.
_NUMBERS: Final = {
    "reclaim_grace_seconds": (0, _DAY, "The reclaim grace"),
    "minimum_run_seconds": (0, 30 * _DAY, "The minimum run time"),
    "weight": (1, 10_000, "The weight"),
    "quota": (0, 1_000_000, "The quota"),
    "default_priority": (1, MAX_PRIORITY, "The default priority"),
    "lowest_priority": (1, MAX_PRIORITY, "The lowest priority"),
    "highest_priority": (1, MAX_PRIORITY, "The highest priority"),
}
_TRUTHS: Final = ("preemption", "borrows", "lends")
_TEXTS: Final = {"description": 200, "execution_user": 64, "deployment_directory": 4096}
_MOST_USERS: Final = 10_000


def checked_terms(problems: Problems, given: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given terms as the columns hold them, with rows for names. `now`: the terms that hold otherwise."""
    checked: dict[str, Any] = {}
    unknown = given.keys() - {term.column for term in TERMS}
    assert not unknown, f"no terms of an instance group: {sorted(unknown)}"
    for column, value in given.items():
        checked[column] = _checked(problems, column, value)
    _check_priorities(problems, {**now, **given})
    return checked


def _checked(problems: Problems, column: str, value: Any) -> Any:
    if column in _NUMBERS:
        _check_number(problems, column, value)
    elif column in _TRUTHS and not isinstance(value, bool):
        problems.add(column, "It is true or false.")
    elif column == "policy" and value not in InstanceGroup.Policy.values:
        problems.add(column, f"There is no such policy: use {', '.join(InstanceGroup.Policy.values)}.")
    elif column in _TEXTS:
        return _checked_text(problems, column, value)
    elif column == "resource_group":
        return _found_resource_group(problems, value)
    elif column in LINKS:
        return _found_users(problems, column, value)
    return value


def _check_number(problems: Problems, column: str, value: Any) -> None:
    least, most, words = _NUMBERS[column]
    if column == "quota" and value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        problems.add(column, f"{words} must be a whole number from {least} to {most}.")


def _checked_text(problems: Problems, column: str, value: Any) -> str:
    if value == "":
        return ""
    if not isinstance(value, str) or not value.isprintable() or len(value) > _TEXTS[column]:
        problems.add(column, f"Use at most {_TEXTS[column]} letters, digits and punctuation, on one line.")
        return ""
    if column == "deployment_directory" and not value.startswith("/"):
        problems.add(column, "Give the whole path, beginning with a slash.")
    return value.strip()


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


def _found_resource_group(problems: Problems, reference: Any) -> ResourceGroup | None:
    is_reference = isinstance(reference, int | str) and not isinstance(reference, bool)
    group = find_resource_group(reference) if is_reference else None
    if group is None or group.kind != ResourceGroup.Kind.GPU:
        problems.add("resource_group", "There is no resource group of GPUs with this name: pick one of the list.")
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
            problems.add(column, f"There is no user {name[:80]!a}: look at the spelling.")
    return list(users.values())
