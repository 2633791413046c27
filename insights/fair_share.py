"""Contents of the fair-share page: shares of groups and trainings, loans, and waits, as far as the viewer may see."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from django.utils import timezone

from core.pages import PAGE_SIZE
from core.roles import Asking
from core.text import plural
from jobs.control.snapshots import snapshot
from jobs.messages import text_of
from jobs.models import Job
from jobs.queries.groups import visible_groups
from jobs.queries.jobs import visible_jobs
from jobs.words import ANOTHER_USERS_TRAINING, capitalized, gpus, trainings
from scheduling.sharing_report import FairShare, GroupShare, JobShare, PendingReclaim, fair_share

__all__ = ["FairSharePage", "GroupLine", "JobLine", "SharingPoolLine", "Wait", "fair_share_page"]


_ANOTHER_GROUP: Final = "another instance group"
#: Highest number of waiting trainings whose reasons are read; further ones are only counted.
_MOST_WAITING: Final = 200
#: Number of waits that the page shows; the rest is folded away.
_SHOWN_WAITS: Final = 5
#: Highest number of ids in a query for names; with more, the names of all active trainings are read.
_MOST_NAMED: Final = 100


@dataclass(frozen=True)
class GroupLine:
    id: Annotated[int | None, "null: the viewer may not see this group."]
    name: str
    resource_group: str
    started: bool
    quota: int | None
    weight: int
    wants: Annotated[int, "Most GPUs that its trainings can use."]
    deserved: Annotated[float, "GPUs that it is entitled to now, by quota, weight and demand."]
    held: int
    target: Annotated[int, "GPUs that it has once all pending changes are done."]
    borrowed: Annotated[int, "GPUs held beyond its quota, out of others' quotas."]
    lent: Annotated[int, "GPUs of its quota that others hold."]
    #: Number of all slots of its pool: the full length of its bar.
    total: int
    price: Annotated[float | None, "Policy goodput: value of one more GPU, in weighted utility."]
    prices: Annotated[Mapping[str, float], "Value of one more GPU by kind of GPU, if there are several kinds."]
    gap: Annotated[float | None, "Policy goodput: upper bound on the optimality gap of the division, as a fraction."]

    @property
    def goodput_text(self) -> str:
        """Return a sentence about the quality of the division under policy goodput; "" under others."""
        if self.price is None or self.gap is None:
            return ""
        best = f"at most {100 * self.gap:.1f} % below the best possible one" if self.gap >= 0.0005 else "the best one"
        if not self.price:
            return f"{self.name}: each training has all the GPUs that it can use well; another GPU would not help."
        each = [f"{price:.3g} on {kind or 'GPUs of an unknown model'}" for kind, price in sorted(self.prices.items())]
        price = ", ".join(each) if each else f"{self.price:.3g}"
        worth = f"another GPU would be worth {price} (weighted speed-up) to its trainings"
        return f"{self.name}: {worth}, and the division of its present GPUs is {best}."

    @property
    def own(self) -> int:
        """Number of held GPUs that are not borrowed."""
        return self.held - self.borrowed


@dataclass(frozen=True)
class JobLine(JobShare):
    name: str
    visible: Annotated[bool, "false: the training is another user's, and its name is hidden."]
    total: int


@dataclass(frozen=True)
class SharingPoolLine:
    """Set of instance groups that share GPUs."""

    resource_groups: tuple[str, ...]
    total: int
    free: int
    groups: tuple[GroupLine, ...]


@dataclass(frozen=True)
class Wait:
    """A reason why trainings wait, said once for all that wait for it."""

    #: The trainings that wait, and the reason.
    sentence: str
    #: Id and name of each training that `sentence` counts and does not name.
    trainings: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class FairSharePage:
    pools: tuple[SharingPoolLine, ...]
    jobs: tuple[JobLine, ...]
    waits: tuple[Wait, ...]
    more: Annotated[int, "Number of trainings that are not listed."]

    @property
    def waiting(self) -> list[str]:
        return [wait.sentence for wait in self.waits]

    @property
    def first_waits(self) -> tuple[Wait, ...]:
        return self.waits[:_SHOWN_WAITS]

    @property
    def other_waits(self) -> tuple[Wait, ...]:
        return self.waits[_SHOWN_WAITS:]

    @property
    def with_gpus(self) -> list[JobLine]:
        """Return the trainings that hold or deserve GPUs."""
        return [line for line in self.jobs if line.held or line.deserved]

    @property
    def without_gpus(self) -> list[JobLine]:
        return [line for line in self.jobs if not line.held and not line.deserved]


def fair_share_page(user: Asking) -> FairSharePage:
    """Return the page's contents, which the scheduler's own functions compute for the cluster as it is now."""
    found = fair_share(snapshot(timezone.now()))
    names = _VisibleNames(user, found)
    totals = {share.group.name: pool.total for pool in found.sharing_pools for share in pool.groups}
    first = sorted(found.jobs, key=lambda share: (-share.held, -share.deserved, -share.priority, share.job))[:PAGE_SIZE]
    lines = [
        JobLine(
            **{**vars(share), "group": names.group(share.group)},
            name=names.jobs.get(share.job, ANOTHER_USERS_TRAINING),
            visible=share.job in names.jobs,
            total=totals[share.group],
        )
        for share in first
    ]
    pools = [
        SharingPoolLine(
            pool.resource_groups,
            pool.total,
            pool.free,
            tuple(_group_line(share, pool.total, names) for share in pool.groups),
        )
        for pool in found.sharing_pools
    ]
    return FairSharePage(tuple(pools), tuple(lines), tuple(_waits(found, names)), len(found.jobs) - len(lines))


class _VisibleNames:
    """Names of groups and trainings, as far as the viewer may read them."""

    def __init__(self, user: Asking, found: FairShare) -> None:
        self.groups: dict[str, int] = dict(visible_groups(user).values_list("name", "pk"))
        numbers = [share.job for share in found.jobs]
        mine = visible_jobs(user).select_related(None).filter(finished_at__isnull=True).order_by()
        rows = mine.filter(pk__in=numbers) if len(numbers) <= _MOST_NAMED else mine
        self.jobs: dict[int, str] = dict(rows.values_list("pk", "name"))

    def group(self, name: str) -> str:
        return name if name in self.groups else _ANOTHER_GROUP

    def trainings(self, numbers: Sequence[int]) -> str:
        """Return the name of one training, or the number of several, as the beginning of a sentence."""
        if len(numbers) > 1:
            return trainings(len(numbers))
        # Do not capitalize a name that a user chose.
        own = self.jobs.get(numbers[0]) if numbers else "A training"
        return own or capitalized(ANOTHER_USERS_TRAINING)


def _group_line(share: GroupShare, total: int, names: _VisibleNames) -> GroupLine:
    group = share.group
    return GroupLine(
        id=names.groups.get(group.name),
        name=names.group(group.name),
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
        price=share.price,
        prices=share.prices,
        gap=share.gap,
    )


def _waits(found: FairShare, names: _VisibleNames) -> Iterable[Wait]:
    waiting = [share for share in found.jobs if share.held < share.deserved or not share.deserved]
    mentioned: set[int] = set()
    for pool in found.sharing_pools:
        shares = {share.group.name: share for share in pool.groups}
        for reclaim in pool.pending_reclaims:
            theirs = [share for share in waiting if share.group == reclaim.owner]
            due = [share.job for share in theirs if share.deserved or not reclaim.returning]
            mentioned.update(due)
            yield Wait(_reclaim_sentence(reclaim, shares, due, names))
    yield from _waits_within_groups([share.job for share in waiting if share.job not in mentioned], names)


def _reclaim_sentence(
    reclaim: PendingReclaim, shares: Mapping[str, GroupShare], waiting: Sequence[int], names: _VisibleNames
) -> str:
    owner, holder = names.group(reclaim.owner), names.group(reclaim.holder)
    waits = plural(max(1, len(waiting)), "waits", "wait")
    who = f"{names.trainings(waiting)} of {owner} {waits}"
    share = shares[reclaim.holder]
    if not reclaim.returning:
        until = share.group.minimum_run_seconds
        why = f"until its trainings have run for {until} s" if until else "because its trainings have no other place"
        return f"{who}: {holder} keeps {gpus(reclaim.slots)} that {owner} is entitled to, {why}."
    held = (
        f"has borrowed {reclaim.slots} of {owner}'s GPUs"
        if share.borrowed
        else f"holds {gpus(reclaim.slots)} of {owner}'s"
    )
    back = plural(reclaim.slots, "which is returned", "which are returned")
    within = reclaim.stops_within_seconds
    when = "after the present step" if within is None else f"within {within} s, because a training is being stopped"
    return f"{who}: {holder} {held}, {back} {when}."


def _waits_within_groups(jobs: Sequence[int], names: _VisibleNames) -> Iterable[Wait]:
    """Yield the reasons why jobs wait, in the words that their owners read."""
    visible = [job for job in jobs if job in names.jobs]
    waiting = Job.objects.filter(pk__in=visible[:_MOST_WAITING]).order_by("-priority", "submitted_at", "id")
    reasons: dict[str, list[tuple[int, str]]] = {}
    for pk, name, params in waiting.values_list("pk", "name", "reason_params"):
        reasons.setdefault(text_of(params), []).append((pk, name))
    for reason, same in reasons.items():
        if len(same) > 1:
            yield Wait(f"{trainings(len(same))}, each: {reason}", tuple(same))
        else:
            yield Wait(f"{same[0][1]}: {reason}")
    others, more = len(jobs) - len(visible), max(0, len(visible) - _MOST_WAITING)
    if more:
        waits = plural(more, "{count} more training waits", "{count} more trainings wait")
        yield Wait(f"{waits}: see the list of trainings.")
    if others:
        yield Wait(plural(others, "{count} training of another user waits.", "{count} trainings of others wait."))
