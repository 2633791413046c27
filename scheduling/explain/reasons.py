"""The reason for what each job gets: a code, and params that name the rule that decided and hold its figures.

`params["message"]` names the sentence that `jobs.messages` renders from the other params, in the words of the job's
owner. Params hold all that the sentence needs, names as they are now: a rewording changes no stored reason.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from math import ceil, floor
from typing import Any

from scheduling.explain.case import Case, Params, label
from scheduling.explain.group_summary import GroupSummary, OtherGroups, summarize
from scheduling.placement.reserved_slots import reserved_slots
from scheduling.placement.slot_choice import JobSlots
from scheduling.plan import Explanation, PlanReason
from scheduling.policies.backfill import Reservation
from scheduling.policies.demand import Demand
from scheduling.policies.goodput_bids import BEHIND
from scheduling.policies.kind_ratios import ORDER, Estimate
from scheduling.policies.speedups import KNEE, JobScaling
from scheduling.policies.weighted_share import WeightedPart, rounded_weight, weighted_part
from scheduling.sharing.decision import Decision
from scheduling.sharing.pool import Pool
from scheduling.snapshot import JobView

__all__ = ["explain"]

_MAX_GIVERS = 5


def explain(
    decision: Decision, placed: Mapping[int, JobSlots], others: OtherGroups, jobs: Iterable[int]
) -> dict[int, Explanation]:
    """One explanation for each of `jobs`, which are some of `placed`."""
    summary = summarize(decision, placed, others)
    return {job: _explain(summary, job) for job in jobs}


def _explain(summary: GroupSummary, job: int) -> Explanation:
    decision, place = summary.decision, summary.places.get(job)
    if job in decision.reclaimed:
        return _reclaimed(summary, summary.views[job])
    if place is not None:
        case = Case(summary, decision.demands[place])
        if case.placed.target == 0:
            return _stopped(case) if case.demand.running else _waiting(case)
        return _share(case) if case.demand.running or case.placed.claim else _awaiting(case)
    if job in decision.pinned:
        return _pinned(summary.views[job], decision)
    return _held_back(summary, job) if job in decision.held_back else _closed(decision)


def _because(code: PlanReason, message: str, **figures: Any) -> Explanation:
    return Explanation(code, {"message": message, **figures})


# --- jobs with slots -------------------------------------------------------------------------------------------------


def _share(case: Case) -> Explanation:
    placed, demand, moving_off, missing = case.placed, case.demand, case.moving_off, case.placed.missing
    message, figures = _rule(case)
    params: Params = {
        "message": message,
        "policy": case.decision.pool.group.policy,
        "target": placed.target,
        "capacity": case.summary.capacity,
        "before": case.before,
        "claimed": len(placed.claim),
        "missing": missing,
        "priority": case.me.priority,
        "min_slots": demand.min_slots,
        "max_slots": case.most,
        **(case.study if message == "goodput" else {}),
        **figures,
    }
    if case.filling:
        assert case.first_waiting is not None
        params |= {"before_whom": case.labelled(case.first_waiting), "fills": case.filling}
    if demand.id in case.decision.over_quota and (entitlement := case.decision.entitlement):
        params["over_quota"] = floor(entitlement.deserved)
    if placed.target < demand.max_slots:
        params |= case.summary.entitlement
    if case.kind is not None:
        params |= _kind_figures(case, case.kind)
    params |= _late_figures(case)
    if (move := placed.joining) is not None:
        hosts, fewer = move.hosts
        params |= {"hosts": hosts, "fewer_hosts": fewer, "joined_faster": round((move.faster - 1) * 100)}
    if moving_off:
        params["moving_off"] = moving_off
    if placed.leaving:
        params["leaving"] = sorted({ref.host for ref in placed.leaving})
    if missing:
        params |= _givers(case, missing)
    return Explanation(_code(case, moving_off), params)


def _kind_figures(case: Case, kind: str) -> Params:
    """Return how much faster or slower it is there than on as many of the kind that it moves from, or else of the one
    that would suit it best of the others; and whether it was measured on both. Where GPUs count by their kind, only
    what one of that kind counts."""
    target, scalings = case.placed.target, case.demand.scalings
    moves_from = case.moves_from
    if case.is_weighted:
        weight = rounded_weight(case.decision.pool.group.weight_of(kind))
        return {"kind": kind, "kind_weight": weight, "moves_to_kind": moves_from is not None}
    if case.me.one_kind:
        return {}
    other = moves_from
    if other is None:
        other = max((one for one in scalings if one != kind), key=lambda one: (scalings[one].speedup(target), one))
    faster = round((scalings[kind].speedup(target) / scalings[other].speedup(target) - 1) * 100)
    origin = _estimated(scalings[kind].speed, scalings[other].speed)
    return {
        "kind": kind,
        "other_kind": other,
        "kind_faster": faster,
        "moves_to_kind": moves_from is not None,
        "kind_assumed": origin is not None,
        **({} if origin is None else {"kind_source": origin.source, "kind_trainings": origin.trainings}),
        **({"kind_third": origin.by_way_of} if origin is not None and origin.by_way_of else {}),
    }


def _estimated(*speeds: Estimate) -> Estimate | None:
    """Return the less certain one of these speeds; None if the job measured both."""
    estimated = [one for one in speeds if one.source != "measured"]
    return max(estimated, key=lambda one: ORDER[one.source], default=None)


def _late_figures(case: Case) -> Params:
    """Return how late it is, and how much more it weighs for that; none if it is not late."""
    division = case.decision.goodput
    ratio = division.late.get(case.demand.id) if division is not None else None
    if ratio is None:
        return {}
    return {"finish_time_ratio": round(ratio, 1), "late_weight": round(ratio / BEHIND, 1)}


_CODES_OF_LIMITS = {"knee": PlanReason.AT_ITS_KNEE, "profile": PlanReason.PROFILING}


def _code(case: Case, moving_off: list[str]) -> PlanReason:
    target, before = case.placed.target, case.before
    if not case.demand.running:
        return PlanReason.BACKFILLED if case.filling else PlanReason.GRANTED
    if target < before and before > case.most == target:
        return PlanReason.LIMIT_CHANGED
    if moving_off or case.placed.joining is not None:
        return PlanReason.REBALANCED
    if case.moves_from is not None and case.placed.vacate:
        return PlanReason.MOVED_FOR_GOODPUT if case.is_goodput else PlanReason.REBALANCED
    if target == before and (code := _CODES_OF_LIMITS.get(case.goodput_limit)):
        return code
    entitlement = case.decision.entitlement
    if target < before and entitlement is not None and entitlement.gives_back:
        return PlanReason.RECLAIMED_BY_OWNER
    if case.is_goodput and target > before and case.placed.claim:
        return PlanReason.GREW_FOR_GOODPUT
    if target < before:
        return _shrunk(case)
    if target > before:
        return PlanReason.GREW_INTO_FREE_SLOTS if case.placed.claim else PlanReason.REBALANCED
    return PlanReason.UNCHANGED


def _shrunk(case: Case) -> PlanReason:
    if case.is_goodput:
        return PlanReason.SHRUNK_FOR_GOODPUT
    return PlanReason.SHRUNK_FOR_FAIR_SHARE if case.is_fair_share else PlanReason.PREEMPTED_BY_PRIORITY


_Rule = tuple[str, Params]


def _rule(case: Case) -> _Rule:
    """Return the first rule that applies, with its figures."""
    if case.summary.capacity > case.decision.capacity:
        return "protected", {"minimum_run_seconds": case.decision.pool.group.minimum_run_seconds}
    if case.goodput_limit:
        assert case.demand.scaling is not None
        return _limit_rule(case.goodput_limit, case.demand.scaling)
    if case.placed.target == case.most and case.me.is_idle:
        return "idle", {}
    if case.placed.target == case.most:
        return _maximum_rule(case.me)
    ahead = None if (case.is_fair_share or case.is_goodput) and case.preemption else case.summary.ahead_of(case.demand)
    if ahead is not None:
        return "ahead", {"others": [case.labelled(ahead)]}
    if case.is_goodput and case.demand.scaling is not None:
        return _goodput_rule(case, case.demand.scaling)
    if case.study:
        return "study", case.study
    if case.is_weighted:
        return _weights_rule(case)
    if case.first_other is None:
        return "alone", {}
    return _fair_share_rule(case) if case.is_fair_share else _in_order_rule(case)


def _maximum_rule(me: JobView) -> _Rule:
    if me.newcomers_fail:
        return "newcomers_fail", {}
    if me.kind_is_all:
        return "all_of_kind", {"began_on": me.began_on}
    return "maximum" if me.elastic else "fixed", {}


def _limit_rule(limit: str, scaling: JobScaling) -> _Rule:
    """Explain a job that no larger size would serve better. The figures do not change with each profile."""
    if limit == "profile":
        return ("measured_on", {"measured": scaling.measured}) if scaling.measured else ("unmeasured", {})
    if limit == "hosts":
        return "whole_hosts", {"host": scaling.host}
    return "knee", {"least_gain": round((1 / KNEE - 1) * 100)}


def _goodput_rule(case: Case, scaling: JobScaling) -> _Rule:
    """Explain by the gain of its next step up, and of another job's last one, in percent of speed. Sizes that are no
    faster than a smaller one are nobody's step."""
    target, division = case.placed.target, case.decision.goodput
    assert division is not None
    gains = {size: _faster(scaling, target, size) for size in (*scaling.sizes, scaling.most) if size > target}
    after = next((size for size, gain in gains.items() if gain > 0), None)
    if after is None:
        return _limit_rule("profile" if scaling.limit == "profile" else "knee", scaling)
    figures: Params = {"next": after, "faster": gains[after]}
    on_kind = case.kind or ""
    for step in division.last:
        other = case.decision.demands[case.summary.places[step.job]]
        assert other.scaling is not None
        faster = _faster(other.scaling, step.before, step.after)
        if step.job != case.demand.id and step.kind == on_kind and faster > 0:
            others = [case.labelled(other)]
            return "goodput", figures | {
                "others": others, "other_more": step.after - step.before, "other_faster": faster
            }  # fmt: skip
    return "goodput", figures


def _faster(scaling: JobScaling, before: int, after: int) -> int:
    return round((scaling.speedup(after) / scaling.speedup(before) - 1) * 100)


def _weights_rule(case: Case) -> _Rule:
    """Explain by what its GPUs count, beside the part that its priority is of all."""
    if case.kind is None:
        return _floor(case)
    part = _weighted_part(case, case.kind)
    if part.jobs == 1:
        return "one_kind", {}
    by_priority = part.total * case.me.priority / part.priorities
    return "by_weights", {
        "counts": rounded_weight(part.counts),
        "counts_in_all": rounded_weight(part.total),
        "counts_by_priority": rounded_weight(by_priority),
        "jobs_that_share": part.jobs,
        "priorities": part.priorities,
    }


def _weighted_part(case: Case, kind: str) -> WeightedPart:
    decision = case.decision
    assert decision.goodput is not None
    kinds = {**decision.goodput.kinds, case.demand.id: kind}
    counted = {job: case.summary.counted(decision.demands[case.summary.places[job]]) for job in kinds}
    return weighted_part(decision.pool.group, counted, decision.shares, kinds, case.demand.id)


def _fair_share_rule(case: Case) -> _Rule:
    others, division = case.others, case.decision.division
    assert division is not None
    if others.at_maximum == others.jobs:
        return "others_maximum", _counted(case)
    if case.demand.id not in division.by_priority:
        return _floor(case)
    sharing = len(division.by_priority) - 1
    if not sharing or others.jobs == 1:
        first = case.first_other
        assert first is not None
        return ("compared", {"others": [case.labelled(first)]}) if sharing else _floor_of_others(case, first)
    figures = {"sharing_count": sharing, "shared": division.shared, "total_priority": division.priority}
    return "by_priority", {**figures, **_counted(case)}


def _counted(case: Case) -> Params:
    """Count the others and what they get together; names the other one, if it is one."""
    others = case.others
    figures: Params = {"others_count": others.jobs, "others_slots": others.slots}
    if others.jobs == 1 and (first := case.first_other):
        figures["others"] = [case.labelled(first)]
    return figures


def _floor(case: Case) -> _Rule:
    """Explain a job that has more than its priority alone would give it, and cannot have less."""
    demand, figures = case.demand, {**_counted(case), "floor": case.mine}
    if demand.limit is not None and case.mine == demand.limit < demand.held:
        return "limited", figures
    if case.mine < demand.min_slots:
        return "below_minimum", figures
    return "floor" if case.mine == demand.min_slots else "kept", figures


def _floor_of_others(case: Case, first: Demand) -> _Rule:
    """Explain a job whose slots are limited because every other job is at its minimum or maximum."""
    figures, share = _counted(case), case.share(first)
    if case.others.jobs > 1:
        return "others_limits", figures
    if share == first.min_slots:
        return "floor_of_other", {**figures, "floor": share}
    return "others_have" if case.preemption else "kept_of_other", {**figures, "floor": share}


def _in_order_rule(case: Case) -> _Rule:
    first = case.first_other
    assert first is not None
    if case.preemption and first.priority > case.me.priority:
        return "compared", {"others": [case.labelled(first)]}
    return "others_have", _counted(case)


def _pinned(me: JobView, decision: Decision) -> Explanation:
    pool = decision.pool
    slots = len(pool.held.get(me.id, ())) + len(pool.away[me.id])
    hosts = sorted({ref.host for ref in pool.away[me.id]})
    figures = {"target": slots, "before": slots, "min_slots": me.min_slots}
    return _because(PlanReason.UNCHANGED, "pinned", **figures, hosts=hosts, elastic=me.elastic)


def _reclaimed(summary: GroupSummary, me: JobView) -> Explanation:
    """Other groups have a right to its slots, and its own group keeps too few for it."""
    pool = summary.decision.pool
    before = len(pool.held.get(me.id, ())) + len(pool.away.get(me.id, ()))
    figures = {"target": 0, "before": before, **_lost(pool, me, before), **summary.entitlement}
    return _because(PlanReason.RECLAIMED_BY_OWNER, "reclaimed", **figures)


def _lost(pool: Pool, me: JobView, slots: int) -> Params:
    """Return the cost of a stop."""
    return {"loses_minutes": ceil(me.loses(slots, pool.at) / 60), "continues": me.continues}


def _held_back(summary: GroupSummary, job: int) -> Explanation:
    """Explain a job held back because no host can fit it, or because the first job of any group reserved the shared
    slots."""
    reservation, me = summary.decision.shared_reservation, summary.views[job]
    if (most := summary.decision.pool.too_large_for_hosts.get(job)) is not None:
        if me.one_kind:
            figures = {"min_slots": me.min_slots, "most": most, "began_on": me.began_on}
            return _because(PlanReason.WAITING_FOR_SLOTS, "one_kind_lacks", **figures)
        absent = summary.absent.figures(me.max_slots, on_one_host=True)
        return _because(PlanReason.WAITING_FOR_SLOTS, "one_host", min_slots=me.max_slots, most=most, **absent)
    assert reservation is not None
    first = summary.views[reservation.job]
    figures = {"min_slots": me.min_slots, "reserved": reservation.slots, **_at(reservation)}
    return _because(
        PlanReason.WAITING_FOR_SLOTS, "held_back_for", **figures, first={"job": first.id, **label(me, first)}
    )


def _at(reservation: Reservation) -> Params:
    return {} if reservation.at is None else {"reserved_at": ceil(reservation.at)}


def _closed(decision: Decision) -> Explanation:
    return _because(PlanReason.GROUP_STOPPED, "closed", target=0, group=decision.pool.group.name)


# --- jobs without slots ----------------------------------------------------------------------------------------------


def _stopped(case: Case) -> Explanation:
    figures = {"target": 0, "before": case.before, "priority": case.me.priority}
    if (study := case.study) and study["study_slots"]:
        figures |= {"capacity": case.summary.capacity, **_lost(case.decision.pool, case.me, case.before)}
        return _because(_shrunk(case), "study_shrinks", **figures, **study)
    place = case.summary.places.get(case.demand.backfilled_for or 0)
    if place is not None and case.demand.may_give_way:
        first = case.summary.counted(case.decision.demands[place])
        return _because(PlanReason.GAVE_WAY, "gave_way", **figures, others=[case.labelled(first)])
    higher = case.first_other  # the policy serves by priority, and nothing else stops a job
    assert higher is not None
    figures |= _lost(case.decision.pool, case.me, case.before)
    others = [case.labelled(higher)]
    return _because(PlanReason.PREEMPTED_BY_PRIORITY, "stopped_by_priority", **figures, others=others)


def _awaiting(case: Case) -> Explanation:
    """Explain a job that has a target, but too few free slots yet."""
    target = case.placed.target
    one_host = case.me.one_host
    free = len(case.placed.kept_for) if one_host else min(case.summary.free_left, target)
    hosts = {"one_host": one_host, "equal_hosts": case.me.equal_hosts}
    figures: Params = {"target": target, "free": free, **{name: True for name, applies in hosts.items() if applies}}
    return _because(PlanReason.WAITING_FOR_SLOTS, "given_back", **figures, **_givers(case, target - free))


def _waiting(case: Case) -> Explanation:
    need, capacity = case.demand.min_slots, case.decision.capacity
    if need > capacity:
        code = _waits_for_group(case) or PlanReason.GANG_TOO_LARGE_NOW
        figures = {"min_slots": need, "capacity": capacity, **_absent(case, need - capacity)}
        if (kept := case.decision.shared_reservation) and kept.job == case.demand.id:
            figures |= {"reserved": kept.slots, **_at(kept)}
        return _because(code, "too_large", **figures, **case.summary.entitlement)
    if case.demand.id in case.held_back and (first := case.first_waiting) is not None:
        return _behind(case, first)
    if (study := case.study) and (study["study_slots"] or case.counted.id != case.demand.id):
        figures = {"capacity": case.summary.capacity, **study}
        return _because(PlanReason.WAITING_FOR_SLOTS, "study_waits", **figures, **case.summary.entitlement)
    ahead = case.summary.ahead_of(case.demand)
    return _in_line(case) if ahead is None else _behind(case, ahead)


def _waits_for_group(case: Case) -> PlanReason | None:
    """Explain a job that would fit if its group did not already hold all the slots it owns."""
    entitlement = case.decision.entitlement
    owned = None if entitlement is None else entitlement.limit if entitlement.quota is None else entitlement.quota
    if entitlement is None or owned is None:
        return None
    is_at_quota = owned <= entitlement.room < entitlement.wants
    return PlanReason.OVER_QUOTA if is_at_quota and case.demand.min_slots <= entitlement.total else None


def _behind(case: Case, ahead: Demand) -> Explanation:
    figures = {"priority": case.me.priority, "others": [case.labelled(ahead)]}
    if case.decision.pool.group.policy != "fifo" and ahead.priority > case.me.priority:
        return _because(PlanReason.BEHIND_HIGHER_PRIORITY, "behind_priority", **figures)
    return _because(PlanReason.WAITING_FOR_SLOTS, "behind", **figures)


def _in_line(case: Case) -> Explanation:
    """Explain the next job to start: `taken` slots are out of its reach, and the rest is less than its minimum."""
    need, first = case.demand.min_slots, case.first_other
    by_priority = case.decision.pool.group.policy == "priority" and case.preemption
    reservation = case.summary.reservation_in_line(case.demand)
    assert reservation is not None
    taken = case.others.slots if reservation.taken is None else reservation.taken
    # The sum exceeds the capacity only while no job may be stopped.
    capacity = max(case.decision.capacity, taken)
    message = "in_line" if by_priority or not case.preemption else "in_line_for_minimums"
    missing = need - (capacity - taken)
    figures = {"missing": missing, "min_slots": need, "taken": taken, "capacity": capacity, **_absent(case, missing)}
    code = _waits_for_group(case) or PlanReason.WAITING_FOR_SLOTS
    if by_priority and first is not None and first.priority > case.me.priority:
        code = PlanReason.BEHIND_HIGHER_PRIORITY
    return _because(code, message, **figures, **case.summary.entitlement, **_reserved(case))


def _absent(case: Case, missing: int) -> Params:
    """Return the hosts out of service with which it would start; none where its group's part is the limit."""
    return {} if case.summary.entitlement else case.summary.absent.figures(missing)


def _reserved(case: Case) -> Params:
    """Return its reservation and its latest start; empty where nobody can say when."""
    reservation = case.decision.reservation
    if reservation is None or reservation.job != case.demand.id or reservation.at is None or case.me.one_host:
        return {}
    figures = {"reserved": reservation.slots, "reserved_at": ceil(reservation.at)}
    known = reserved_slots(case.decision, case.summary.placed)
    return figures | (
        {"reserved_hosts": sorted({ref.host for ref in known})} if len(known) == reservation.slots else {}
    )


def _givers(case: Case, missing: int) -> Params:
    """Return the missing slots, the jobs that give them back (only the first few if there are many), and those that
    nobody gives back yet."""
    givers, slots = case.summary.givers, case.summary.givers_slots
    first = [{"job": job, **case.label(job), "slots": count} for job, count in islice(givers.items(), _MAX_GIVERS)]
    figures: Params = {"missing": missing, "givers": first, "givers_count": len(givers), "givers_slots": slots}
    return figures | ({"not_free": missing - slots} if 0 < slots < missing else {})
