"""Division of slots among instance groups in one cycle, and the result of each group's policy.

Groups that use different slots have nothing to do with each other. Those that share some get parts by quota and weight
(entitlement.py), and each group's policy divides its part (`policies/shares.py`). Then:

- a group that cannot give up what it holds, because a minimum run time is not over or a job has nowhere to go, keeps it
  for now, and the others share the rest;
- a job of fixed size, the first in its group's line, that needs more than the group's part, though not more than twice
  as much, and that has waited for five minutes, has a reservation of what all share: it starts once so much is there
  without stopping anybody, and whoever came later starts before it only as `policies.backfill` says. So a group is
  compensated for what it leaves unused while it waits. What others own by quota is never touched;
- what a group cannot use of its part, because the next job in its line needs more at once, is lent: first so that
  nobody is stopped, then to those that want more, by quota and weight again, then to whoever can use it.

A group takes back what it has lent in the very cycle in which it can use it.
"""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from scheduling.policies.backfill import reserve
from scheduling.policies.demand import Demand
from scheduling.sharing.confinement import confine
from scheduling.sharing.decision import Decision, decide
from scheduling.sharing.entitlement import Claimant
from scheduling.sharing.kept_slots import committed_by, firm_slots, lasting_slots, reserved_before, waiting_jobs
from scheduling.sharing.lending import lend
from scheduling.sharing.pool import SlotIndex, sharing_groups
from scheduling.sharing.sharers import Division, Sharers, sharers_of

__all__ = ["WAITED_SECONDS", "divide"]


#: Seconds that a job that needs more than its group's part waits before it has a reservation of shared slots.
WAITED_SECONDS = 300.0


def divide(index: SlotIndex) -> dict[str, Decision]:
    """Return the decision of each group of `index`, by name."""
    decisions: dict[str, Decision] = {}
    for groups in sharing_groups(index.groups, index.sizes):
        if len(groups) == 1 and groups[0].limit is None:
            pool = index.pool(groups[0])
            decisions[groups[0].name] = decide(pool, pool.capacity)
        else:
            decisions |= _divided(sharers_of(index, groups))
    return decisions


def _divided(sharers: Sharers) -> dict[str, Decision]:
    exact = sharers.deserved(sharers.claimants)
    division = _share_out(Division(sharers, _with_reserved(sharers)))
    if waiting := _first_above_its_part(division, exact):
        division = _compensate(division, *waiting, most=2 * exact[waiting[0]])
    if len(sharers.sizes) > 1:
        division = _on_kinds_that_are_left(division)
    return {
        name: replace(decision, entitlement=division.entitlement(name, exact[name]))
        for name, decision in division.decisions.items()
    }


def _with_reserved(sharers: Sharers) -> dict[str, Claimant]:
    """Let no job be stopped because one of its group was started on more than the group's part, but for what others own
    by quota."""
    found = dict(sharers.claimants)
    for name, pool in sharers.pools.items():
        if needed := reserved_before(pool):
            least = sum(demand.least for demand in pool.demands if demand.running)
            kept = next((count for count in (needed, least) if sharers.may_have(found, name, count)), 0)
            found[name] = replace(found[name], least=kept)
    return found


def _share_out(division: Division) -> Division:
    """Divide anew among the same claimants: parts in whole slots, what groups keep, and what they lend."""
    division = replace(division, rooms={}, decisions={})
    division = division.with_rooms(division.sharers.parts(division.claimants))
    # Each turn finds at least one more group that keeps more than its part.
    while over := {name: used for name, used in division.used.items() if used > division.rooms[name]}:
        claimants = {
            name: replace(one, least=over[name]) if name in over else one for name, one in division.claimants.items()
        }
        parts = division.sharers.parts(claimants)
        division = replace(division, claimants=claimants, rooms={**division.rooms, **over})
        division = division.with_rooms({name: part for name, part in parts.items() if name not in over})
    return lend(division)


def _on_kinds_that_are_left(division: Division) -> Division:
    """Say which slots each group may have. A group that cannot use all that it was given, because other groups keep the
    kinds of GPU that it would need, asks for no more than it uses: a slot that stayed free would be taken from a job
    and given back to it again and again."""
    counted, division = division, confine(division)
    while division.sharers.index.kinds is not None:
        short = {
            name: replace(one, wants=used)
            for name, one in division.claimants.items()
            if (used := division.decisions[name].used) < min(counted.decisions[name].used, one.wants)
        }
        if not short:
            break
        counted = _share_out(replace(division, claimants={**division.claimants, **short}))
        before, division = division, confine(counted)
        division = division.with_decisions(
            {name: one.with_reservations_of(before.decisions[name]) for name, one in division.decisions.items()}
        )
    return division


# --- a job that needs more than its group's part ---------------------------------------------------------------------


def _first_above_its_part(division: Division, exact: Mapping[str, Fraction]) -> tuple[str, Demand] | None:
    """Return the longest waiting of the first jobs in the groups' lines that need more than their group's part, and not
    more than twice as much; with its group."""
    found: list[tuple[float, int, str, Demand]] = []
    for name, decision in division.decisions.items():
        # Also a job that would be stopped for others: it would start again at once.
        waiting = (demand for demand in decision.demands if not demand.running)
        first = next((demand for demand in waiting if demand.id not in decision.shares), None)
        if first is None or first.min_slots < first.max_slots or decision.capacity >= first.min_slots:
            continue
        # Nor does the group have more than twice its part with it: its other jobs grow and stay by its policy.
        needed = first.min_slots + lasting_slots(decision, first)
        has_waited = decision.pool.at - first.submitted_at >= WAITED_SECONDS
        is_due = has_waited and exact[name] < first.min_slots and needed <= 2 * exact[name]
        if is_due and division.sharers.may_have(division.claimants, name, needed):
            found.append((first.submitted_at, first.id, name, first))
    return min(found, key=lambda one: one[:2])[2:] if found else None


def _compensate(division: Division, name: str, first: Demand, *, most: Fraction) -> Division:
    """Start it if that stops no other job; else keep for it what comes free, unless that would not start it either."""
    claimants = division.claimants
    firm = {
        other: max(firm_slots(decision, first), claimants[other].owned)
        for other, decision in division.decisions.items()
    }
    firm[name] = firm_slots(division.decisions[name], first) + first.min_slots
    if division.sharers.are_there(firm):
        # Not on top of more than its group's part that the other jobs of the group keep until their ends.
        return (_started(division, name, first, firm) if firm[name] <= most else None) or division
    kept = _keep_for(division, name, first)
    if first.id not in kept.decisions[name].shares:
        return kept
    # Slots that others leave for it would start it at once, and be taken back in the next cycle.
    return _started(division, name, first, {name: firm[name]}) or division


def _started(division: Division, name: str, first: Demand, least: Mapping[str, int]) -> Division | None:
    """Divide so that groups have at least so much. None: that does not start `first`, or stops another job for it."""
    own = {other: replace(division.claimants[other], least=count) for other, count in least.items()}
    own = {other: replace(one, least=min(one.least, one.most)) for other, one in own.items()}
    tried = _share_out(replace(division, claimants={**division.claimants, **own}))
    decision = tried.decisions[name]
    stops = any(not one.reclaimed <= division.decisions[other].reclaimed for other, one in tried.decisions.items())
    if stops or first.id not in decision.shares:
        return None
    return tried.with_decisions({name: replace(decision, over_quota=frozenset({first.id}))})


def _keep_for(division: Division, name: str, first: Demand) -> Division:
    """Let later jobs wait for the first in line, unless they delay nothing or use their group's quota."""
    reach = division.sharers.reach
    near = {other: one for other, one in division.decisions.items() if not set(reach[name]).isdisjoint(reach[other])}
    committed = [one for decision in near.values() for one in committed_by(decision, first)]
    reservation = reserve(first.id, first.min_slots, committed, division.sharers.total(name))
    held_back: dict[str, frozenset[int]] = {}
    for other, decision in near.items():
        later = set[int]()
        quota_left = 0 if other == name else division.claimants[other].owned - firm_slots(decision, first)
        for demand in waiting_jobs(decision, first, ahead=False):
            if demand.min_slots <= quota_left:
                quota_left -= demand.min_slots
            elif not reservation.admit(demand.id, demand.min_slots, demand.min_slots, demand.ends(decision.pool.at)):
                later.add(demand.id)
        if later:
            held_back[other] = frozenset(later)
    if held_back:
        # Jobs behind them in their group's line may use what was lent because they could not.
        division = _share_out(replace(division, held_back=held_back))
    reserved = {}
    for other in near:
        decision = division.decisions[other]
        started = {job: one for job, one in reservation.overtaking.items() if job in decision.shares}
        overtaking = {**started, **decision.overtaking}
        reserved[other] = replace(decision, shared_reservation=reservation, overtaking=overtaking)
    return division.with_decisions(reserved)
