"""The slots of a snapshot, sorted once by who offers and who holds them."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

from scheduling.sharing.entitlement import SlotClass
from scheduling.snapshot import GroupView, SlotRef, Snapshot

__all__ = [
    "ByJob",
    "Refs",
    "SlotClasses",
    "SortedSlots",
    "kind_of_class",
    "resource_groups",
    "slot_class",
    "sort_slots",
]

_BY_REF = attrgetter("ref")
_BY_HOST = attrgetter("host")
_BY_USE = attrgetter("held_by", "resource_groups", "claimable", "vacating")
_BY_USE_AND_KIND = attrgetter("held_by", "resource_groups", "claimable", "vacating", "device")
_NOWHERE: SlotClass = frozenset()
#: Begins the name of a kind of GPU in a class of slots, unlike that of any resource group.
_KIND = "\0"

Refs = tuple[SlotRef, ...]
#: Job -> slots, in order of (host, index).
ByJob = Mapping[int, Refs]


def slot_class(names: Iterable[str], kinds: Iterable[str]) -> SlotClass:
    return frozenset(names).union(_KIND + kind for kind in kinds) if names else _NOWHERE


def resource_groups(offered: SlotClass) -> Iterator[str]:
    """Names of the resource groups that offer slots of this class."""
    return (name for name in offered if not name.startswith(_KIND))


def kind_of_class(offered: SlotClass) -> str:
    """Return the kind of GPU of slots of this class, where kinds are told apart."""
    return next(name for name in offered if name.startswith(_KIND)).removeprefix(_KIND)


class SlotClasses:
    """The class of each slot in service. Found where it is asked for: there are very many slots."""

    def __init__(self, runs: Sequence[tuple[SlotRef, SlotClass]], kept: Mapping[SlotRef, SlotClass]) -> None:
        """`runs`: the first slot of each row of one class, in order. `kept`: slots that are of another one."""
        self._starts = [first for first, _ in runs]
        self._offered = [offered for _, offered in runs]
        self._kept = kept

    def __getitem__(self, ref: SlotRef) -> SlotClass:
        return self._kept.get(ref) or self._offered[bisect_right(self._starts, ref) - 1]

    def rows(self, refs: Iterable[SlotRef]) -> list[Refs]:
        """Return these slots by class, most of one class first: a job that shrinks keeps the first ones."""
        found = defaultdict[SlotClass, list[SlotRef]](list)
        for ref in refs:
            found[self[ref]].append(ref)
        return sorted(map(tuple, found.values()), key=len, reverse=True)


@dataclass
class SortedSlots:
    """See `scheduling.sharing.pool.SlotIndex`."""

    free: dict[SlotClass, dict[str, Refs]] = field(default_factory=lambda: defaultdict(dict))
    held: dict[str, dict[int, Refs]] = field(default_factory=lambda: defaultdict(dict))
    away: dict[str, dict[int, Refs]] = field(default_factory=lambda: defaultdict(dict))
    coming: dict[SlotClass, dict[int, Refs]] = field(default_factory=lambda: defaultdict(dict))
    held_in: dict[str, Counter[SlotClass]] = field(default_factory=lambda: defaultdict(Counter))
    #: See `SlotClasses`.
    runs: list[tuple[SlotRef, SlotClass]] = field(default_factory=list)
    #: All that there are.
    classes: set[SlotClass] = field(default_factory=set)


def sort_slots(
    snapshot: Snapshot, groups: Iterable[GroupView], relevant: SlotClass, kinds: Mapping[SlotRef, str] | None
) -> SortedSlots:
    """Sort slots by class. relevant: resource groups of the groups that count. kinds: those of the slots."""
    # Very many slots come by here: what can be found out once for a row of them is not asked for each.
    sorted_slots = SortedSlots()
    home_of = {group.name: group.resource_group for group in groups}
    group_of = {job.id: job.group for job in snapshot.jobs if job.state != "PENDING"}
    held, away = defaultdict[int, list[SlotRef]](list), defaultdict[int, list[SlotRef]](list)
    coming = defaultdict[SlotClass, dict[int, list[SlotRef]]](lambda: defaultdict(list))
    class_of: dict[tuple[tuple[str, ...], str], SlotClass] = {}
    by_use = _BY_USE if kinds is None else _BY_USE_AND_KIND
    for (holder, names, claimable, vacating, *rest), there in groupby(sorted(snapshot.slots, key=_BY_REF), key=by_use):
        key = names, rest[0] if rest else ""
        if key not in class_of:
            class_of[key] = slot_class(relevant.intersection(names), rest)
        refs, offered = tuple(map(_BY_REF, there)), class_of[key] if claimable else _NOWHERE
        sorted_slots.runs.append((refs[0], offered))
        group = group_of.get(holder)
        if holder is None:
            if offered:
                _add_free(sorted_slots.free[offered], refs)
        elif group is None or vacating:
            if offered:
                coming[offered][holder] += refs
        elif home_of[group] in offered:
            held[holder] += refs
            sorted_slots.held_in[group][offered] += len(refs)
        else:
            away[holder] += refs
    for holder in sorted(held):
        sorted_slots.held[group_of[holder]][holder] = tuple(held[holder])
    for holder in sorted(away):
        sorted_slots.away[group_of[holder]][holder] = tuple(away[holder])
    for offered, ending in coming.items():
        sorted_slots.coming[offered] = {holder: tuple(ending[holder]) for holder in sorted(ending)}
    sorted_slots.classes.update(class_of.values())
    return sorted_slots


def _add_free(free: dict[str, Refs], refs: Refs) -> None:
    rows = ((refs[0].host, refs),) if refs[0].host == refs[-1].host else groupby(refs, key=_BY_HOST)
    for host, there in rows:
        free[host] = free.get(host, ()) + tuple(there)
