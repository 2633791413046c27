"""Which instance groups a user sees, and what each of them has and does now."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import Count, Q, QuerySet

from core.errors import NotFound
from core.references import by_reference
from core.roles import may_change
from jobs.models import InstanceGroup, Job, SlotClaim
from jobs.queries.deployment import Deployment, deployed_on, hosts_for_deployment
from jobs.queries.group_terms import OF_GROUP_ADMINS, TERMS, in_words
from jobs.queries.jobs import visible_jobs
from jobs.states import HOLDING, JobState

__all__ = [
    "GroupNow",
    "changeable_terms",
    "find_visible_group",
    "get_visible_group",
    "groups_now",
    "newest_jobs",
    "visible_groups",
]

User = AbstractBaseUser | AnonymousUser

_MOST_JOBS = 20


@dataclass(frozen=True)
class GroupNow:
    """A line of the list, and what a group's page begins with."""

    group: InstanceGroup
    deployment: Deployment
    running: int
    waiting: int
    #: GPUs that its trainings hold.
    held: int
    #: Mean of its held GPUs that tell it.
    utilisation_percent: float | None
    memory_used_bytes: int | None

    @property
    def policy_words(self) -> str:
        words = in_words("policy", self.group.policy)
        return words[0].upper() + words[1:]


def visible_groups(user: User) -> QuerySet[InstanceGroup]:
    """Those that the user may submit to or administers; for staff, all."""
    groups = InstanceGroup.objects.select_related("resource_group")
    if getattr(user, "is_staff", False):
        return groups
    if not user.pk:
        return groups.none()
    mine = Q(members=None) | Q(members=user.pk) | Q(admins=user.pk)
    return groups.filter(pk__in=InstanceGroup.objects.filter(mine).values("pk"))


def find_visible_group(user: User, reference: int | str) -> InstanceGroup | None:
    return by_reference(visible_groups(user), reference)


def get_visible_group(user: User, group_id: int) -> InstanceGroup:
    group = visible_groups(user).filter(pk=group_id).first()
    if group is None:
        raise NotFound(f"There is no instance group {group_id} that you may see: look it up in the list.")
    return group


def changeable_terms(user: User, group: InstanceGroup | None = None) -> frozenset[str]:
    """The terms that the user may set: of this group, or of one that is made."""
    if getattr(user, "is_staff", False):
        return frozenset(term.column for term in TERMS)
    if group is None or user not in group.admins.all() or not may_change(user):
        return frozenset()
    return OF_GROUP_ADMINS


def groups_now(groups: Iterable[InstanceGroup]) -> list[GroupNow]:
    """In a fixed number of queries."""
    rows = list(groups)
    hosts = hosts_for_deployment()
    counts = _job_counts(rows)
    claims = _open_claims(rows)
    return [_now(group, deployed_on(group.resource_group, hosts), counts, claims[group.pk]) for group in rows]


def newest_jobs(user: User, group: InstanceGroup) -> list[Job]:
    """The viewer's in this group: those that are not over first."""
    mine = visible_jobs(user).filter(instance_group=group)
    active = list(mine.filter(finished_at__isnull=True).order_by("-submitted_at", "-id")[:_MOST_JOBS])
    if len(active) < _MOST_JOBS:
        over = mine.filter(finished_at__isnull=False).order_by("-submitted_at", "-id")
        active += over[: _MOST_JOBS - len(active)]
    return active


def _job_counts(groups: Sequence[InstanceGroup]) -> Counter[tuple[int, bool]]:
    """(group, whether it holds GPUs or will in a moment) -> trainings that are not over."""
    rows = Job.objects.filter(finished_at__isnull=True, instance_group__in=groups).order_by()
    counts: Counter[tuple[int, bool]] = Counter()
    for group, state, count in rows.values_list("instance_group", "state").annotate(count=Count("pk")):
        if state in HOLDING or state == JobState.PENDING:
            counts[group, state in HOLDING] += count
    return counts


def _open_claims(groups: Sequence[InstanceGroup]) -> dict[int, list[tuple[float | None, int | None]]]:
    """Group -> (utilisation, memory) of each GPU that it holds."""
    claims: dict[int, list[tuple[float | None, int | None]]] = defaultdict(list)
    rows = SlotClaim.objects.filter(released_at__isnull=True, job__instance_group__in=groups).order_by()
    columns = ("job__instance_group", "slot__reading__utilisation_percent", "slot__reading__memory_used_bytes")
    for group, utilisation, memory in rows.values_list(*columns):
        claims[group].append((utilisation, memory))
    return claims


def _now(
    group: InstanceGroup,
    deployment: Deployment,
    counts: Counter[tuple[int, bool]],
    held: Sequence[tuple[float | None, int | None]],
) -> GroupNow:
    busy = [utilisation for utilisation, _ in held if utilisation is not None]
    memory = [used for _, used in held if used is not None]
    return GroupNow(
        group=group,
        deployment=deployment,
        running=counts[group.pk, True],
        waiting=counts[group.pk, False],
        held=len(held),
        utilisation_percent=sum(busy) / len(busy) if busy else None,
        memory_used_bytes=sum(memory) if memory else None,
    )
