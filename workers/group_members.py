"""Table of the hosts of a resource group, its totals, and the slots that it shares with other groups."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from workers.group_rules import Offer, attributes, offer_of
from workers.models import Host, ResourceGroup
from workers.slot_formula import FormulaError, parse

__all__ = [
    "COLUMNS",
    "COOKIE",
    "Column",
    "Member",
    "Overlap",
    "Totals",
    "members",
    "overlaps",
    "shown_columns",
    "totals",
]

#: Cookie with the chosen columns (`resource_group.js`): names joined by dots.
COOKIE = "tidepool_member_columns"
_NONE = "–"


@dataclass(frozen=True)
class Member:
    """Row of the table: a host, whether member or not."""

    host: Host
    is_member: bool
    #: Number of slots that it offers, or would offer as a member; None if the rule cannot be computed.
    slots: int | None
    #: Number of its slots that are free; None if the slots are no GPUs.
    free: int | None
    #: Models of its GPUs.
    model: str
    #: Error of the rule or requirement on this host; "": none.
    problem: str = ""

    @property
    def cells(self) -> list[tuple["Column", object]]:
        values = ((column, column.value(self)) for column in COLUMNS)
        return [(column, _NONE if value is None else value) for column, value in values]


@dataclass(frozen=True)
class Column:
    name: str
    label: str
    #: Returns the value of a row; None: the host does not report it.
    value: Callable[[Member], object]
    is_number: bool = True
    is_usual: bool = False


@dataclass(frozen=True)
class Totals:
    hosts: int
    cpus: int
    slots: int


@dataclass(frozen=True)
class Overlap:
    """Another group that offers some of the same slots."""

    group: str
    slots: int
    hosts: list[str]


def members(
    offer: Offer, hosts: Iterable[Host], held: Mapping[int, set[int]], models: Mapping[int, str]
) -> list[Member]:
    """Return the rows of the table.

    held: id of a host -> indexes of its held slots.
    models: id of a host -> models of its GPUs.
    """
    return [_member(offer, host, held.get(host.pk, set()), models.get(host.pk, "")) for host in hosts]


def _member(offer: Offer, host: Host, held: set[int], model: str) -> Member:
    slots, problem = _slots(offer, host)
    if offer.kind != ResourceGroup.Kind.GPU or slots is None:
        free = None
    else:
        offered = min(slots, host.ngpus) if host.state == Host.State.ONLINE else 0
        free = sum(index not in held for index in range(offered))
    return Member(host, offer.takes(host), slots, free, model or _NONE, problem or _why_not(offer, host))


def _slots(offer: Offer, host: Host) -> tuple[int | None, str]:
    try:
        slots = parse(offer.slot_rule).slots(attributes(host))
    except FormulaError as error:
        return None, error.sentence
    if offer.kind == ResourceGroup.Kind.GPU and slots > host.ngpus:
        return slots, f"the rule gives {slots} slots, and the host has {host.ngpus} GPUs"
    return slots, ""


def _why_not(offer: Offer, host: Host) -> str:
    """Return why the requirement cannot be computed for the host; "" if it can."""
    if offer.selection != ResourceGroup.Selection.DYNAMIC or not offer.requirement.strip():
        return ""
    try:
        parse(offer.requirement).is_met(attributes(host))
    except FormulaError as error:
        return error.sentence
    return ""


def totals(rows: Iterable[Member]) -> Totals:
    """Return the totals of the members. Hosts that have left count, but offer no slots."""
    found = [row for row in rows if row.is_member]
    there = [row for row in found if row.host.state != Host.State.OFFLINE]
    return Totals(len(found), sum(row.host.ncpus for row in found), sum(row.slots or 0 for row in there))


def overlaps(offer: Offer, others: Iterable[ResourceGroup], hosts: Sequence[Host]) -> list[Overlap]:
    """Return the groups of the same kind that share slots, largest overlap first. Groups offer the lowest indexes."""
    mine = offer.slots(hosts)
    found = []
    for group in others:
        if group.kind != offer.kind:
            continue
        theirs = offer_of(group).slots(hosts)
        shared = {name: min(count, theirs.get(name, 0)) for name, count in mine.items()}
        names = sorted(name for name, count in shared.items() if count)
        if names:
            found.append(Overlap(group.name, sum(shared.values()), names))
    return sorted(found, key=lambda overlap: (-overlap.slots, overlap.group))


def shown_columns(cookies: Mapping[str, str]) -> set[str]:
    """Return the names of the columns to show."""
    if COOKIE not in cookies:
        return {column.name for column in COLUMNS if column.is_usual}
    return set(cookies[COOKIE].split(".")) & {column.name for column in COLUMNS}


def _gib(size: int | None) -> str | None:
    return None if size is None else f"{size / 1024**3:.1f} GiB"


def _type(row: Member) -> str:
    if not row.host.ngpus:
        return "CPUs only"
    return "virtual GPUs" if row.host.virtual else "GPUs"


COLUMNS = (
    Column("type", "Type", _type, is_number=False),
    Column("model", "Model", attrgetter("model"), is_number=False),
    Column("address", "Address", attrgetter("host.address"), is_number=False),
    Column("ncpus", "CPUs", attrgetter("host.ncpus"), is_usual=True),
    Column("maxmem", "Max Mem", lambda row: _gib(row.host.memory_bytes), is_usual=True),
    Column("maxswp", "Max Swap", lambda row: _gib(row.host.swap_bytes)),
    Column("free", "Free slots", attrgetter("free")),
    Column("ngpus", "ngpus", attrgetter("host.ngpus")),
    Column("nprocs", "nprocs", attrgetter("host.nprocs")),
    Column("ncores", "ncores", attrgetter("host.ncores")),
    Column("nthreads", "nthreads", attrgetter("host.nthreads")),
)
