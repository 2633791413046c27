"""The table of groups: what membership of a provider's group gives on this site. The operator writes it in TOML.

[[groups]]
group = "gpu-vision"            # name of the provider's group; "*": everybody whom the provider lets log in
role = "data_scientist"         # or viewer, cluster_admin
instance_groups = ["vision"]    # those that members may submit to
administers = ["vision"]        # those whose sharing rules and members they may change
"""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["EVERYBODY", "Grants", "GroupTable", "GroupTableError", "parse_group_table", "read_group_table"]

#: Name of a group that everybody is in.
EVERYBODY = "*"
#: Values of `core.roles.Role`, the most powerful one last.
_ROLES = ("viewer", "data_scientist", "cluster_admin")
_FIELDS = frozenset({"group", "role", "instance_groups", "administers"})


class GroupTableError(ValueError):
    """The file cannot be used; the sentence says why, and what to do."""


@dataclass(frozen=True)
class Grants:
    """A role, and names of instance groups that a user may submit to and of those that the user administers."""

    role: str
    member_of: frozenset[str] = frozenset()
    administers: frozenset[str] = frozenset()


@dataclass(frozen=True)
class GroupTable:
    """Grants of the provider's groups. A group may occur several times."""

    rows: tuple[tuple[str, Grants], ...]

    @property
    def managed(self) -> frozenset[str]:
        """Names of the instance groups whose members and administrators follow the provider."""
        return frozenset(name for _, grants in self.rows for name in grants.member_of | grants.administers)

    def granted(self, groups: Iterable[str]) -> Grants | None:
        """Return what members of these groups get: the highest role, and all instance groups. None: no log-in."""
        theirs = {*groups, EVERYBODY}
        found = [grants for group, grants in self.rows if group in theirs]
        if not found:
            return None
        return Grants(
            max((grants.role for grants in found), key=_ROLES.index),
            frozenset().union(*(grants.member_of for grants in found)),
            frozenset().union(*(grants.administers for grants in found)),
        )


def read_group_table(file: Path) -> GroupTable:
    """Return the table in this file. Raises GroupTableError."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise GroupTableError(f"{file} cannot be read ({error}): write the groups there, in TOML.") from None
    return parse_group_table(text, str(file))


def parse_group_table(text: str, file: str = "The table") -> GroupTable:
    """Return the table in this text. file: name in errors. Raises GroupTableError."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise GroupTableError(f"{file} cannot be read ({error}): write the groups there, in TOML.") from None
    rows = content.get("groups")
    if not isinstance(rows, list) or not rows or content.keys() != {"groups"}:
        raise GroupTableError(f"{file} has no groups: add at least one [[groups]], and nothing else.")
    return GroupTable(tuple(_row(file, number, row) for number, row in enumerate(rows, 1)))


def _row(file: str, number: int, row: Any) -> tuple[str, Grants]:
    where = f"Group {number} in {file}"
    if not isinstance(row, dict):
        raise GroupTableError(f"{where} is not a table: write [[groups]] above it.")
    if unknown := sorted(row.keys() - _FIELDS):
        raise GroupTableError(f"{where} has the unknown field {unknown[0]}: use {', '.join(sorted(_FIELDS))}.")
    group = row.get("group")
    if not isinstance(group, str) or not group:
        raise GroupTableError(f"{where} has no name: add group = with the name that the provider sends.")
    if row.get("role") not in _ROLES:
        raise GroupTableError(f"{where} has no role: add role = with one of {', '.join(_ROLES)}.")
    return group, Grants(row["role"], _names(where, row, "instance_groups"), _names(where, row, "administers"))


def _names(where: str, row: dict[str, Any], field: str) -> frozenset[str]:
    names = row.get(field, [])
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise GroupTableError(f"{where}: {field} must be a list of names, such as {field} = ['vision'].")
    return frozenset(names)
