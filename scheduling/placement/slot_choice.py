"""Choice of slots: a job on as few hosts as possible, and hosts left whole for others. Ties by (host, index)."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import chain, groupby
from operator import itemgetter

from scheduling.placement.one_host import HostChoices, choose_hosts
from scheduling.placement.packing import pack
from scheduling.placement.restricted import choose_restricted
from scheduling.placement.slots_by_host import SlotsByHost, by_host
from scheduling.placement.spread import spread
from scheduling.policies.demand import Demand
from scheduling.sharing.decision import Decision
from scheduling.sharing.pool import Pool, SlotIndex
from scheduling.sharing.slot_classes import ByJob, SlotClasses
from scheduling.snapshot import JobView, SlotRef

__all__ = ["JobSlots", "Joining", "choose_all_hosts", "choose_kept", "handed_over", "place", "without"]


@dataclass(frozen=True, slots=True)
class Joining:
    """A move of a training to fewer hosts."""

    job: int
    leaves: tuple[SlotRef, ...]
    takes: tuple[SlotRef, ...]
    #: Number of its hosts before and after.
    hosts: tuple[int, int]
    #: Speed after the move, relative to that before.
    faster: float
    #: The same, less what the move costs.
    worth: float


@dataclass(slots=True)
class JobSlots:
    """The slots of one job: what it keeps and claims now, and what it gives back."""

    target: int
    kept: tuple[SlotRef, ...]
    claim: tuple[SlotRef, ...]
    vacate: tuple[SlotRef, ...]
    #: Kept slots on hosts that take nothing new, or that another job needs; given back as soon as others can be claimed
    #: instead.
    leaving: tuple[SlotRef, ...] = ()
    #: Held slots on a host that another job needs as a whole.
    makes_room: tuple[SlotRef, ...] = ()
    #: Slots that are kept for a job that waits for more free slots on one host.
    kept_for: tuple[SlotRef, ...] = ()
    #: Waiting job before which this one starts, on slots that it needs; None: there is none.
    backfilled_for: int | None = None
    #: True if the job starts now by a reservation, on more than its group's part.
    over_quota: bool = False
    #: Kind of GPU that it shall train on. None: there is one alone, or nobody cares which.
    kind: str | None = None
    #: Move to fewer hosts that it makes in this cycle, if any.
    joining: Joining | None = None

    def joined(self, move: Joining) -> "JobSlots":
        """Return the same with this move."""
        kept = tuple(ref for ref in self.kept if ref not in move.leaves)
        return replace(self, kept=kept, claim=move.takes, vacate=move.leaves, joining=move)

    @property
    def missing(self) -> int:
        """Number of slots of the target that others have still to give back."""
        return self.target - len(self.kept) - len(self.claim)

    @property
    def preempt(self) -> bool:
        """True if it is stopped, and waits again."""
        return self.target == 0 and bool(self.vacate)


def place(decision: Decision, host_choices: HostChoices) -> dict[int, JobSlots]:
    """Slots for every job of the group, in the order in which they are served."""
    kinds = decision.goodput.kinds if decision.goodput is not None else {}
    pool = _on_kinds(_beside(decision.pool, host_choices), kinds)
    placed: dict[int, JobSlots] = {}
    for job in (*sorted(decision.pinned), *sorted(decision.reclaimed | decision.closed | decision.held_back)):
        slots, stays = tuple(sorted(pool.held.get(job, ()) + pool.away.get(job, ()))), job in decision.pinned
        placed[job] = JobSlots(len(slots), slots, (), ()) if stays else JobSlots(0, (), (), vacate=slots)
    served = [demand for demand in decision.demands if demand.id not in placed]
    targets = {demand.id: decision.shares.get(demand.id, 0) for demand in served}
    # Shrinking jobs leave slots that are of use to those that wait.
    shunned = {host for one in served if one.held < targets[one.id] for host in pool.views[one.id].unprepared}
    kept = {one.id: choose_kept(pool.held.get(one.id, ()), targets[one.id], pool.classes, shunned) for one in served}
    claiming = [demand for demand in served if not pool.views[demand.id].one_host]
    claims: dict[int, list[SlotRef]] = {}
    staying = kept | {job: placed[job].kept for job in decision.pinned}
    for shape in pool.shapes:
        on_kind = claiming if pool.kinds is None else [one for one in claiming if kinds.get(one.id) == shape.kind]
        free = pool.free if pool.kinds is None else _of_kind(pool, shape.kind)
        wanted, apart = choose_restricted(_wanted(on_kind, targets, kept, free), pool.views, kept, free)
        rest = without(free, chain.from_iterable(apart.values()))
        claims |= apart | spread(wanted, staying, rest, shape.slots_of)
    if pool.kinds is not None or not pool.shapes:
        # Rather on another kind than not at all.
        left = [one for one in claiming if one.id not in kinds or not (one.running or claims.get(one.id))]
        free = without(pool.free, chain.from_iterable(claims.values()))
        wanted, apart = choose_restricted(_wanted(left, targets, kept, free), pool.views, kept, free)
        rest = without(free, chain.from_iterable(apart.values()))
        claims |= apart | pack(wanted, kept, SlotsByHost(rest))
    yielded = _yielded(pool, served, kinds, targets, kept, claims)
    for demand in served:
        job, host_slots = demand.id, host_choices.kept_for.get(demand.id, ())
        starts = bool(host_slots) and len(host_slots) == targets[job]
        claim = host_slots if starts else claims.get(job, ())
        found = _leave(pool, demand, targets[job], yielded.get(job, 0), kept=kept[job], claim=claim)
        if moving := host_choices.moving.get(job):
            found.makes_room = tuple(sorted(moving))
        if not starts:
            found.kept_for = host_slots
        found.kind = kinds.get(job)
        placed[job] = found
    _mark_by_reservation(decision, placed)
    return placed


def _wanted(
    demands: Iterable[Demand],
    targets: Mapping[int, int],
    kept: Mapping[int, tuple[SlotRef, ...]],
    free: Mapping[str, tuple[SlotRef, ...]],
) -> dict[int, int]:
    """Job -> how many free slots it claims now, in this order."""
    wanted, spare = dict[int, int](), sum(map(len, free.values()))
    for demand in demands:
        count = min(targets[demand.id] - len(kept[demand.id]), spare)
        if count > 0 and (demand.running or count >= demand.min_slots):
            wanted[demand.id] = count
            spare -= count
    return wanted


def _of_kind(pool: Pool, kind: str) -> dict[str, tuple[SlotRef, ...]]:
    """Free slots of this kind of GPU."""
    assert pool.kinds is not None
    left = {host: tuple(ref for ref in refs if pool.kinds[ref] == kind) for host, refs in pool.free.items()}
    return {host: refs for host, refs in left.items() if refs}


def without(free: Mapping[str, tuple[SlotRef, ...]], claimed: Iterable[SlotRef]) -> Mapping[str, tuple[SlotRef, ...]]:
    """Return the free slots by host, without those of `claimed`."""
    if not (taken := set(claimed)):
        return free
    left = {host: tuple(ref for ref in refs if ref not in taken) for host, refs in free.items()}
    return {host: refs for host, refs in left.items() if refs}


def choose_all_hosts(index: SlotIndex, decisions: Sequence[Decision]) -> HostChoices:
    """Hosts for the jobs that need one each, in the order in which their groups are placed."""
    host_choices = HostChoices()
    wanting = [(decision, wants) for decision in decisions if (wants := _wanting(decision))]
    leaving = _in_order_of_leaving(decisions) if wanting else []
    stopping = [ref for decision in decisions for ref in _stopping(decision)] if wanting else []
    for decision, wants in wanting:
        group = decision.pool.group
        pool = index.pool(group)
        unfit = {job: decision.pool.views[job].unfit for job in wants}
        # Jobs that cannot use the same hosts, one after the other, are served together.
        runs = groupby(wants, key=lambda job: job if decision.pool.allotted is not None else unfit[job])
        for some in [{job: wants[job] for job in run} for _, run in runs]:
            movable = list(index.movable_for(group, leaving))
            free, coming = list(chain(*pool.free.values())), list(chain(*pool.coming.values()))
            coming += [ref for ref in stopping if index.is_open_to(group, ref)]
            if out := {host for job in some for host in unfit[job]}:
                free, coming = (
                    [ref for ref in free if ref.host not in out],
                    [ref for ref in coming if ref.host not in out],
                )
                movable = [(job, ref) for job, ref in movable if ref.host not in out]
            if decision.pool.allotted is not None:
                chosen = [ref for job in wants for ref in host_choices.kept_for.get(job, ())]
                kept = [*free, *coming, *(ref for _, ref in movable)]
                allowed = _allotted_on_hosts(index, decision, kept, chosen)
                free, coming = [ref for ref in free if ref in allowed], [ref for ref in coming if ref in allowed]
                movable = [(job, ref) for job, ref in movable if ref in allowed]
            choose_hosts(host_choices, some, free, coming, movable)
    return host_choices


def _stopping(decision: Decision) -> Iterator[SlotRef]:
    """Yield the slots in service of jobs that are stopped in this cycle."""
    going_on = decision.shares.keys() | decision.pinned
    for job, refs in decision.pool.held.items():
        if job not in going_on:
            yield from refs


def _allotted_on_hosts(
    index: SlotIndex, decision: Decision, refs: Iterable[SlotRef], chosen: Sequence[SlotRef]
) -> set[SlotRef]:
    """Return those of `refs` that the group may have on each host by itself, beside what it holds and `chosen` slots:
    no more of any class than it is allotted, or it would be stopped there again."""
    assert index.classes is not None
    own = {ref for held in decision.pool.held.values() for ref in held}
    left = Counter(decision.pool.allotted)
    left.subtract(index.classes_of([*own, *chosen]))
    found, taken = set[SlotRef](), Counter[tuple[str, object]]()
    for ref in refs:
        place = ref.host, index.classes[ref]
        if ref in own or taken[place] < left[index.classes[ref]]:
            taken[place] += ref not in own
            found.add(ref)
    return found


def _wanting(decision: Decision) -> dict[int, int]:
    """Job that waits for one host -> the slots that it is given."""
    views, shares = decision.pool.views, decision.shares
    waiting = (one.id for one in decision.demands if one.id in shares and not one.running and views[one.id].one_host)
    return {job: shares[job] for job in waiting if job not in decision.reclaimed}


def _in_order_of_leaving(decisions: Sequence[Decision]) -> list[JobView]:
    """Elastic jobs that stay, but for those that are moving off already: who shrinks most, of equals the last."""
    found: list[tuple[int, JobView]] = []
    for decision in decisions:
        pool = decision.pool
        for one in reversed(decision.demands):
            if one.id in decision.shares and one.id not in pool.displaced and one.id not in decision.reclaimed:
                found.append((decision.shares[one.id] - len(pool.held.get(one.id, ())), pool.views[one.id]))
    found.sort(key=itemgetter(0))
    return [job for _, job in found]


def _beside(pool: Pool, host_choices: HostChoices) -> Pool:
    """Return the pool with jobs away on the slots that they leave for jobs that need one host."""
    moving = {job: host_choices.moving[job] for job in host_choices.moving.keys() & pool.held.keys()}
    return pool.leaving(moving) if moving else pool


def _on_kinds(pool: Pool, kinds: Mapping[int, str]) -> Pool:
    """Return the pool with jobs that shall train on one kind of GPU away on slots of other kinds."""
    if pool.kinds is None:
        return pool
    moving = {}
    for job, kind in kinds.items():
        if others := frozenset(ref for ref in pool.held.get(job, ()) if pool.kinds[ref] != kind):
            moving[job] = others
    return pool.leaving(moving)


def _yielded(
    pool: Pool,
    served: Sequence[Demand],
    kinds: Mapping[int, str],
    targets: Mapping[int, int],
    kept: Mapping[int, tuple[SlotRef, ...]],
    claims: Mapping[int, Sequence[SlotRef]],
) -> dict[int, int]:
    """Job that moves to another kind of GPU -> how many slots it gives up before it has others: those that somebody
    waits for, and that come from nobody else, down to its minimum."""
    if pool.kinds is None:
        return {}
    lacking = Counter[str]()
    for demand in served:
        job = demand.id
        if job in kinds:
            lacking[kinds[job]] += targets[job] - len(kept[job]) - len(claims.get(job, ()))
            lacking.subtract(pool.kind_counts(set(pool.held.get(job, ())).difference(kept[job])))
    lacking.subtract(pool.kind_counts(chain.from_iterable(pool.coming.values())))
    found = {}
    for demand in served:
        job = demand.id
        if job in kinds and (away := pool.away.get(job)):
            has = len(kept[job]) + len(claims.get(job, ()))
            leaves = max(0, len(away) - max(0, targets[job] - has))
            wanted = sum(min(count, max(0, lacking[kind])) for kind, count in pool.kind_counts(away).items())
            found[job] = max(0, min(wanted - leaves, targets[job] - max(has, demand.min_slots)))
            lacking.subtract(pool.kind_counts(away[: leaves + found[job]]))
    return found


def _mark_by_reservation(decision: Decision, placed: Mapping[int, JobSlots]) -> None:
    for job in decision.over_quota:
        placed[job].over_quota = bool(placed[job].claim)
    for job, first in decision.overtaking.items():
        placed[job].backfilled_for = first


def _leave(
    pool: Pool, demand: Demand, target: int, yields: int, *, kept: tuple[SlotRef, ...], claim: Sequence[SlotRef]
) -> JobSlots:
    """Slots on hosts that take nothing new are kept only as long as the target is not reached without them; those that
    another group is to have, only as long as the minimum is not. `yields`: so many fewer are kept."""
    held, away = pool.held.get(demand.id, ()), pool.away.get(demand.id, ())
    if not away and len(kept) == len(held):
        return JobSlots(target, held, tuple(claim), vacate=())
    needed = min(target, demand.min_slots) if demand.id in pool.displaced else target - yields
    leaving = choose_kept(away, needed - len(kept) - len(claim))
    vacate = tuple(sorted(set(held + away).difference(kept, leaving)))
    return JobSlots(target, tuple(sorted(kept + leaving)), tuple(claim), vacate, leaving)


def handed_over(held: ByJob, placed: Mapping[int, JobSlots]) -> dict[int, list[SlotRef]]:
    """Job -> what it vacates of the slots in service that it holds, in order. Only jobs that vacate any."""
    found = {}
    for job, slots in placed.items():
        if slots.vacate and (in_service := held.get(job)):
            still_held = set(in_service)
            if refs := [ref for ref in slots.vacate if ref in still_held]:
                found[job] = refs
    return found


def choose_kept(
    held: tuple[SlotRef, ...], count: int, classes: SlotClasses | None = None, shunned: Set[str] = frozenset()
) -> tuple[SlotRef, ...]:
    """The `count` slots that a shrinking job keeps: most of one class, where `classes` matter to other groups, and so
    that the hosts it leaves are left whole. `held` is in order. shunned: hosts that are left last."""
    if count >= len(held):
        return held
    kept: list[SlotRef] = []
    for row in [held] if classes is None else classes.rows(held):
        first = [ref for ref in row if ref.host in shunned] if shunned else []
        for some in (first, [ref for ref in row if ref.host not in shunned]) if first else (row,):
            kept += SlotsByHost(by_host(some)).take(count - len(kept))
    return tuple(sorted(kept))
