"""Fleets: sets of equal hosts that a command starts and stops. An administrator describes them in a TOML file.

    [[fleets]]
    name = "spot"
    resource_groups = ["ComputeHostsGPU"]   # those that will offer the hosts
    slots = 8                               # GPUs of each host
    command = ["/usr/bin/python3", "/etc/tidepool/aws.py"]
    most = 10

The command runs on the machine of the autoscaler, as its user. So it stands in a file of that machine, not on a page.
"""

import stat
import tomllib
from dataclasses import dataclass, fields
from math import isfinite
from pathlib import Path
from typing import Any

from workers.executor.config import FLEET_NAME

__all__ = ["Fleet", "FleetsError", "read_fleets"]

_MOST_HOSTS = 1000
_MOST_SLOTS = 64
#: Numbers of a fleet: least and most value.
_RANGES: dict[str, tuple[float, float]] = {
    "slots": (1, _MOST_SLOTS),
    "least": (0, _MOST_HOSTS),
    "most": (0, _MOST_HOSTS),
    "price": (0, 1e6),
    "budget_hour": (0, 1e9),
    "budget_month": (0, 1e12),
    "worth": (0, 1.1),
    "hold_seconds": (0, 86400),
    "surplus_seconds": (0, 86400),
    "start_seconds": (1, 86400),
    "timeout_seconds": (1, 3600),
}
_WHOLE = frozenset({"slots", "least", "most"})
_REQUIRED = ("name", "resource_groups", "slots", "command", "most")


class FleetsError(ValueError):
    """The file of fleets cannot be used; the sentence says why, and what to do."""


@dataclass(frozen=True)
class Fleet:
    name: str
    #: Names of the resource groups that will offer the hosts.
    resource_groups: tuple[str, ...]
    #: Number of GPUs of each host.
    slots: int
    #: Program with its arguments.
    command: tuple[str, ...]
    #: Number of hosts at most, and at least.
    most: int
    least: int = 0
    #: GPU model of the hosts; "": unknown.
    kind: str = ""
    #: Price of a host for an hour, and budgets in the same currency; None: no budget.
    price: float = 0.0
    budget_hour: float | None = None
    budget_month: float | None = None
    #: Value of a further GPU, in GPUs that work alone, from which on it pays.
    worth: float = 0.5
    #: Seconds after a change in which no other change is made.
    hold_seconds: float = 120.0
    #: Seconds for which a host has to be of no use before it is stopped.
    surplus_seconds: float = 300.0
    #: Seconds within which a host has to report after the command has been told to start it.
    start_seconds: float = 600.0
    #: Seconds after which the command is ended.
    timeout_seconds: float = 60.0


def read_fleets(file: Path) -> tuple[Fleet, ...]:
    """Return the fleets of the file. Raises FleetsError."""
    try:
        if file.stat().st_mode & stat.S_IWOTH:
            raise FleetsError(f"Everybody may write {file}, which names commands to run: chmod o-w {file}.")
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise FleetsError(f"{file} cannot be read ({error.strerror}): let this user read it.") from None
    except ValueError as error:
        raise FleetsError(f"{file} is not TOML ({error}).") from None
    unknown = sorted(set(values) - {"fleets"})
    rows = values.get("fleets", [])
    if unknown or not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise FleetsError(f"{file} has to consist of [[fleets]] tables{f', not {unknown[0]}' if unknown else ''}.")
    fleets = tuple(_fleet(row, number) for number, row in enumerate(rows, start=1))
    names = [fleet.name for fleet in fleets]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise FleetsError(f"There are two fleets named {twice[0]}: give one of them another name.")
    return fleets


def _fleet(row: dict[str, Any], number: int) -> Fleet:
    named = row.get("name")
    label = f"Fleet {named}" if isinstance(named, str) and named else f"Fleet number {number}"
    known = {each.name for each in fields(Fleet)}
    if unknown := sorted(set(row) - known):
        raise FleetsError(f"{label} has {unknown[0]}, which means nothing: use {', '.join(sorted(known))}.")
    if missing := [name for name in _REQUIRED if name not in row]:
        raise FleetsError(f"{label} has no {missing[0]}: add it.")
    if not isinstance(named, str) or not FLEET_NAME.fullmatch(named):
        raise FleetsError(f"{label}: name has to be at most 64 letters, digits, dots, dashes and underscores.")
    for name in ("resource_groups", "command"):
        row = {**row, name: _texts(label, name, row[name])}
    if not isinstance(row.get("kind", ""), str):
        raise FleetsError(f"{label}: kind has to be the name of a GPU model.")
    for name, (least, most) in _RANGES.items():
        if name in row:
            row = {**row, name: _number(label, name, row[name], least, most)}
    fleet = Fleet(**row)
    if fleet.least > fleet.most:
        raise FleetsError(f"{label}: least is {fleet.least}, which is more than most, {fleet.most}.")
    if not fleet.price and (fleet.budget_hour is not None or fleet.budget_month is not None):
        raise FleetsError(f"{label} has a budget and no price: add the price of a host for an hour.")
    return fleet


def _texts(label: str, name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(one, str) and one for one in value):
        raise FleetsError(f'{label}: {name} has to be a list of texts, such as {name} = ["one", "two"].')
    return tuple(value)


def _number(label: str, name: str, value: Any, least: float, most: float) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    if not is_number or (name in _WHOLE and not isinstance(value, int)) or not least <= value <= most:
        kind = "whole number" if name in _WHOLE else "number"
        raise FleetsError(f"{label}: {name} has to be a {kind} from {least:g} to {most:g}, not {value!r}.")
    return int(value) if name in _WHOLE else float(value)
