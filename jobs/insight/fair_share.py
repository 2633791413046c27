"""Contents of the fair-share page: parts of groups and trainings, loans, and who waits for whom, as one may see it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.utils import timezone

from jobs.control.snapshots import snapshot
from jobs.messages import ANOTHER_USERS_TRAINING, capitalized, gpus, plural, text_of, trainings
from jobs.models import Job
from jobs.queries.groups import visible_groups
from jobs.queries.jobs import visible_jobs
from scheduling.fair_share import FairShare, GroupShare, JobShare, PendingReclaim, SharingPool, fair_share

__all__ = ["FairSharePage", "GroupLine", "JobLine", "fair_share_page"]

User = AbstractBaseUser | AnonymousUser

_ANOTHER_GROUP: Final = "another instance group"
#: Of more trainings, and of more that wait, only the number is said.
_MOST_JOBS: Final = 100
_MOST_WAITING: Final = 30


@dataclass(frozen=True)
class GroupLine:
    #: None: the viewer may not see it.
    id: int | None
    name: str
    resource_group: str
    started: bool
    quota: int | None
    weight: int
    wants: int
    deserved: float
    held: int
    target: int
    borrowed: int
    lent: int
    #: Of all slots of its pool, for bars.
    total: int

    @property
    def own(self) -> int:
        """Held and not borrowed."""
        return self.held - self.borrowed


@dataclass(frozen=True)
class JobLine:
    job: int
    name: str
    visible: bool
    group: str
    priority: int
    held: int
    deserved: int
    wants: int
    total: int


@dataclass(frozen=True)
class SharingPoolLine:
    """Instance groups that share GPUs."""

    resource_groups: tuple[str, ...]
    total: int
    free: int
    groups: tuple[GroupLine, ...]


@dataclass(frozen=True)
class FairSharePage:
    pools: tuple[SharingPoolLine, ...]
    #: Sentences about who waits for whom.
    waiting: tuple[str, ...]
    jobs: tuple[JobLine, ...]
    #: How many trainings are not listed.
    more: int


def fair_share_page(user: User) -> FairSharePage:
    """By the scheduler's own functions, on the cluster as it is now."""
    now = snapshot(timezone.now())
    found = fair_share(now)
    seen = _Seen(user, found)
    totals = {share.group.name: pool.total for pool in found.sharing_pools for share in pool.groups}
    lines = [seen.job_line(share, totals[share.group]) for share in found.jobs]
    lines.sort(key=lambda line: (-line.held, -line.deserved, -line.priority, line.job))
    return FairSharePage(
        pools=tuple(_pool(pool, seen) for pool in found.sharing_pools),
        waiting=tuple(_waiting(found, seen)),
        jobs=tuple(lines[:_MOST_JOBS]),
        more=max(0, len(lines) - _MOST_JOBS),
    )


class _Seen:
    """Names as the viewer may read them."""

    def __init__(self, user: User, found: FairShare) -> None:
        self._groups = dict(visible_groups(user).values_list("name", "pk"))
        numbers = [share.job for share in found.jobs]
        mine = visible_jobs(user).select_related(None).filter(finished_at__isnull=True).order_by()
        rows = mine.filter(pk__in=numbers) if len(numbers) <= _MOST_JOBS else mine
        self._jobs: dict[int, str] = dict(rows.values_list("pk", "name"))

    def group(self, name: str) -> str:
        return name if name in self._groups else _ANOTHER_GROUP

    def group_id(self, name: str) -> int | None:
        return self._groups.get(name)

    def job(self, number: int) -> str | None:
        return self._jobs.get(number)

    def trainings(self, numbers: Sequence[int]) -> str:
        """One by its name, several by their number."""
        if len(numbers) > 1:
            return trainings(len(numbers))
        return self._jobs.get(numbers[0], ANOTHER_USERS_TRAINING) if numbers else "a training"

    def job_line(self, share: JobShare, total: int) -> JobLine:
        name = self.job(share.job)
        return JobLine(
            job=share.job,
            name=name or ANOTHER_USERS_TRAINING,
            visible=name is not None,
            group=self.group(share.group),
            priority=share.priority,
            held=share.held,
            deserved=share.deserved,
            wants=share.wants,
            total=total,
        )


def _pool(pool: SharingPool, seen: _Seen) -> SharingPoolLine:
    lines = tuple(_group_line(share, pool.total, seen) for share in pool.groups)
    return SharingPoolLine(pool.resource_groups, pool.total, pool.free, lines)


def _group_line(share: GroupShare, total: int, seen: _Seen) -> GroupLine:
    group = share.group
    return GroupLine(
        id=seen.group_id(group.name),
        name=seen.group(group.name),
        resource_group=group.resource_group,
        started=group.started,
        quota=group.quota,
        weight=group.weight,
        wants=share.wants,
        deserved=float(share.deserved),
        held=share.held,
        target=share.target,
        borrowed=share.borrowed,
        lent=share.lent,
        total=total,
    )


def _waiting(found: FairShare, seen: _Seen) -> Iterable[str]:
    waiting = [share for share in found.jobs if share.held < share.deserved or not share.deserved]
    told: set[int] = set()
    for pool in found.sharing_pools:
        shares = {share.group.name: share for share in pool.groups}
        for reclaim in pool.pending_reclaims:
            theirs = [share for share in waiting if share.group == reclaim.owner]
            due = [share.job for share in theirs if share.deserved or not reclaim.returning]
            told.update(due)
            yield _reclaim_sentence(reclaim, shares, due, seen)
    yield from _in_their_groups([share.job for share in waiting if share.job not in told], seen)


def _reclaim_sentence(
    reclaim: PendingReclaim, shares: Mapping[str, GroupShare], waiting: Sequence[int], seen: _Seen
) -> str:
    owner, holder = seen.group(reclaim.owner), seen.group(reclaim.holder)
    who = _capital(seen.trainings(waiting), is_name=len(waiting) == 1)
    who = plural(max(1, len(waiting)), "{who} of {owner} waits", "{who} of {owner} wait", who=who, owner=owner)
    share = shares[reclaim.holder]
    if not reclaim.returning:
        until = share.group.minimum_run_seconds
        why = f"until its trainings have run for {until} s" if until else "as its trainings have no other place"
        return f"{who}: {holder} keeps {gpus(reclaim.slots)} that {owner} is to have, {why}."
    held = (
        f"has borrowed {reclaim.slots} of {owner}'s GPUs"
        if share.borrowed
        else f"holds {gpus(reclaim.slots)} of {owner}'s"
    )
    back = plural(reclaim.slots, "which comes back", "which come back")
    within = reclaim.stops_within_seconds
    when = (
        "after the step under way" if within is None else f"within {within} s, as a training there is stopped for now"
    )
    return f"{who}: {holder} {held}, {back} {when}."


def _in_their_groups(jobs: Sequence[int], seen: _Seen) -> Iterable[str]:
    """Why each of them waits, as the scheduler has told its owner."""
    visible = [job for job in jobs if seen.job(job) is not None]
    reasons = Job.objects.filter(pk__in=visible[:_MOST_WAITING]).order_by("-priority", "submitted_at", "id")
    for name, params in reasons.values_list("name", "reason_params"):
        yield f"{name}: {text_of(params)}"
    others, more = len(jobs) - len(visible), max(0, len(visible) - _MOST_WAITING)
    if more:
        waits = plural(more, "{count} more training waits", "{count} more trainings wait")
        yield f"{waits}: the list of jobs has them all."
    if others:
        yield plural(others, "{count} training of another user waits.", "{count} trainings of others wait.")


def _capital(text: str, *, is_name: bool) -> str:
    """A name stays as it was given, whatever its first letter."""
    return text if is_name and not text.startswith(ANOTHER_USERS_TRAINING) else capitalized(text)
