"""WMLA's resource plans: a tree of consumers with one level, in which each instance group has its part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Sum, prefetch_related_objects

from jobs.models import InstanceGroup, Job
from jobs.queries.groups import GroupNow, groups_now, visible_groups
from jobs.states import ACTIVE
from wmla.applications import consumer_of
from wmla.lookup import identities

__all__ = ["ROOT", "plan_of", "plan_tree"]

#: Id of the tree's root: paths of consumers begin with it.
ROOT = "/"


def plan_tree(user: User) -> dict[str, Any]:
    """Return the root with the groups below it that the user may see."""
    groups = list(visible_groups(user))
    return {"id": ROOT, "pid": None, "name": ROOT, "childTreeDto": _plans(groups)}


def plan_of(group: InstanceGroup) -> dict[str, Any]:
    return _plans([group])[0]


def _plans(groups: Sequence[InstanceGroup]) -> list[dict[str, Any]]:
    """Return the rows in a fixed number of queries."""
    prefetch_related_objects(groups, "resource_group__hosts")
    demands = _demands(groups)
    return [_plan(now, demands.get(now.group.pk, 0)) for now in groups_now(groups)]


def _plan(now: GroupNow, demand: int) -> dict[str, Any]:
    group = now.group
    return {
        "id": group.name,
        "pid": ROOT,
        "name": group.name,
        "consumer": consumer_of(group),
        "sigId": identities().group_id(group.pk),
        "resourcegroup": group.resource_group.name,
        "policy": group.policy,
        "preemption": group.preemption,
        "reclaimgrace": group.reclaim_grace_seconds,
        "owned": group.quota,
        "ratio": group.weight,
        "borrow": group.borrows,
        "lend": group.lends,
        "demand": demand,
        "assigned": now.held,
        "childTreeDto": [],
    }


def _demands(groups: Iterable[InstanceGroup]) -> dict[int, int]:
    """Return group -> the most GPUs that its trainings want, including those that wait."""
    jobs = Job.objects.filter(instance_group__in=groups, state__in=sorted(ACTIVE), finished_at__isnull=True)
    sums = jobs.order_by().values("instance_group").annotate(wanted=Sum("max_slots"))
    return {row["instance_group"]: row["wanted"] for row in sums}
