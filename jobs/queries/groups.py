"""Instance groups: those that a user may see, their current use, and the readiness of their hosts.

A group is deployed if its hosts are reachable and offer GPUs. Nothing is installed on them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.db.models import Count, Q, QuerySet

from core.errors import NotAllowed, existing
from core.roles import Asking, is_cluster_admin, may_change
from core.text import by_reference, plural
from jobs.models import InstanceGroup, Job, SlotClaim
from jobs.queries.group_terms import OF_GROUP_ADMINS, TERMS, in_words
from jobs.queries.jobs import visible_jobs
from jobs.states import HOLDING, JobState
from jobs.words import gpus
from workers.group_rules import offer_of
from workers.models import Host, ResourceGroup

__all__ = [
    "Deployment",
    "GroupNow",
    "changeable_terms",
    "deployment",
    "find_visible_group",
    "get_visible_group",
    "groups_now",
    "newest_jobs",
    "required_terms",
    "usable_groups",
    "visible_groups",
]


_MOST_JOBS = 20
_WHY_NOT = {
    Host.State.DRAINING: "The host is draining: its trainings end or move off, and no new ones start there.",
    Host.State.LOST: "The host has stopped reporting: check its executor.",
    Host.State.OFFLINE: "The host is offline: start its executor.",
}


@dataclass(frozen=True)
class HostReadiness:
    name: str
    state: str
    #: Number of GPUs that the host offers to the group.
    slots: int
    #: Reason why the host is not ready, or "".
    why_not: str


@dataclass(frozen=True)
class Deployment:
    hosts: tuple[HostReadiness, ...]

    @property
    def ready(self) -> int:
        return sum(not host.why_not for host in self.hosts)

    @property
    def blocked(self) -> int:
        return len(self.hosts) - self.ready

    @property
    def slots(self) -> int:
        """Number of GPUs of the ready hosts."""
        return sum(host.slots for host in self.hosts if not host.why_not)

    @property
    def text(self) -> str:
        if not self.hosts:
            return "Its resource group has no host with GPUs yet."
        hosts = plural(len(self.hosts), "{count} host is", "{count} hosts are")
        return f"{self.ready} of {hosts} ready, with {gpus(self.slots)}."


@dataclass(frozen=True)
class GroupNow:
    """A group with its current use: a row of the list, and the head of the group's page."""

    group: InstanceGroup
    deployment: Deployment
    running: int
    waiting: int
    #: Number of GPUs that its trainings hold.
    held: int
    #: Mean utilization of its held GPUs that report it.
    utilisation_percent: float | None
    memory_used_bytes: int | None

    @property
    def words_of_others(self) -> str:
        """Return a sentence about the active trainings, for a viewer who has none in the group."""
        running = plural(self.running, "{count} training of others runs in it", "{count} trainings of others run in it")
        return f"{running} and {plural(self.waiting, '{count} waits', '{count} wait')}."

    @property
    def policy_words(self) -> str:
        words = in_words("policy", self.group.policy)
        return words[0].upper() + words[1:]


def visible_groups(user: Asking) -> QuerySet[InstanceGroup]:
    """Return the groups that the user may submit to or administer; for staff, all."""
    groups = InstanceGroup.objects.select_related("resource_group")
    if is_cluster_admin(user):
        return groups
    if not user.pk:
        return groups.none()
    mine = Q(members=None) | Q(members=user.pk) | Q(admins=user.pk)
    return groups.filter(pk__in=InstanceGroup.objects.filter(mine).values("pk"))


def find_visible_group(user: Asking, reference: int | str) -> InstanceGroup | None:
    return by_reference(visible_groups(user), reference)


def get_visible_group(user: Asking, group_id: int) -> InstanceGroup:
    return existing(visible_groups(user).filter(pk=group_id).first(), f"instance group {group_id}")


def changeable_terms(user: Asking, group: InstanceGroup | None = None) -> frozenset[str]:
    """Return the terms that the user may set: of this group, or of a new one."""
    if is_cluster_admin(user):
        return frozenset(term.column for term in TERMS)
    if group is None or user not in group.admins.all() or not may_change(user):
        return frozenset()
    return OF_GROUP_ADMINS


def required_terms(user: Asking, group: InstanceGroup) -> frozenset[str]:
    """Return the terms of this group that the user may set. Raises NotAllowed if there are none."""
    terms = changeable_terms(user, group)
    if not terms:
        raise NotAllowed(f"Only administrators of {group.name} and of the cluster may change it: ask one.")
    return terms


def groups_now(groups: Iterable[InstanceGroup]) -> list[GroupNow]:
    """Return the groups with their current use, in a fixed number of queries."""
    rows, hosts = list(groups), list(_present_hosts())
    counts, claims = _job_counts(rows), _open_claims(rows)
    found = []
    for group in rows:
        busy = [utilisation for utilisation, _ in claims[group.pk] if utilisation is not None]
        memory = [used for _, used in claims[group.pk] if used is not None]
        now = GroupNow(
            group=group,
            deployment=_deployed_on(group.resource_group, hosts),
            running=counts[group.pk, True],
            waiting=counts[group.pk, False],
            held=len(claims[group.pk]),
            utilisation_percent=sum(busy) / len(busy) if busy else None,
            memory_used_bytes=sum(memory) if memory else None,
        )
        found.append(now)
    return found


def newest_jobs(user: Asking, group: InstanceGroup) -> list[Job]:
    """Return the viewer's jobs in this group, unfinished ones first."""
    mine = visible_jobs(user).filter(instance_group=group)
    active = list(mine.filter(finished_at__isnull=True).order_by("-submitted_at", "-id")[:_MOST_JOBS])
    if len(active) < _MOST_JOBS:
        over = mine.filter(finished_at__isnull=False).order_by("-submitted_at", "-id")
        active += over[: _MOST_JOBS - len(active)]
    return active


def _job_counts(groups: Sequence[InstanceGroup]) -> Counter[tuple[int, bool]]:
    """Return (group, whether the state holds GPUs) -> number of unfinished trainings."""
    rows = Job.objects.filter(finished_at__isnull=True, instance_group__in=groups).order_by()
    counts: Counter[tuple[int, bool]] = Counter()
    for group, state, count in rows.values_list("instance_group", "state").annotate(count=Count("pk")):
        if state in HOLDING or state == JobState.PENDING:
            counts[group, state in HOLDING] += count
    return counts


def _open_claims(groups: Sequence[InstanceGroup]) -> dict[int, list[tuple[float | None, int | None]]]:
    """Return group -> (utilization, memory) of each GPU that it holds."""
    claims: dict[int, list[tuple[float | None, int | None]]] = defaultdict(list)
    rows = SlotClaim.objects.open().filter(job__instance_group__in=groups).order_by()
    columns = ("job__instance_group", "slot__reading__utilisation_percent", "slot__reading__memory_used_bytes")
    for group, utilisation, memory in rows.values_list(*columns):
        claims[group].append((utilisation, memory))
    return claims


def deployment(resource_group: ResourceGroup) -> Deployment:
    """Return the readiness of the hosts that the resource group names, or of all that offer GPUs to it."""
    return _deployed_on(resource_group, _present_hosts())


def _present_hosts() -> QuerySet[Host]:
    return Host.objects.filter(removed_at__isnull=True).order_by("name")


def _deployed_on(resource_group: ResourceGroup, hosts: Iterable[Host]) -> Deployment:
    is_static = resource_group.selection == ResourceGroup.Selection.STATIC
    offer = offer_of(resource_group)
    there = [host for host in hosts if is_static or host.state != Host.State.OFFLINE]
    found = []
    for host in there:
        slots = offer.slots_of(host)
        if offer.takes(host) and (is_static or slots):
            why_not = _WHY_NOT.get(
                Host.State(host.state), "" if slots else "The host offers no GPU to the resource group."
            )
            found.append(HostReadiness(host.name, str(host.state), slots, why_not))
    return Deployment(tuple(found))


def usable_groups(user: Asking) -> list[InstanceGroup]:
    """Return the groups that the user may submit to now: a group without members is open to everybody."""
    groups = InstanceGroup.objects.filter(state=InstanceGroup.State.STARTED).order_by("name")
    if not is_cluster_admin(user):
        groups = groups.filter(Q(members=None) | Q(members=user.pk)).distinct()
    return list(groups)
