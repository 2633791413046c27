"""The report of GPUs used in a window: sums with their cost, and a timeline. Nothing here writes.

The cluster's sums are read by GPU model, those of whoever is shown by name beside them; "others" is the difference.
Amounts of money are decimal and exact.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time
from decimal import Decimal

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Q

from core.roles import Asking, is_cluster_admin
from jobs.gpu_time import HOUR, NOTHING, Amount, Sums, to_ms
from jobs.models import InstanceGroup, Job
from usage.models import GpuPrice, UsageBucket
from usage.usage_query import Asked
from usage.usage_window import Timeline, Window

__all__ = ["MAX_BANDS", "UNKNOWN_MODEL", "Report", "Row", "report"]

MAX_BANDS = 8
#: Of a device whose host did not say what it is.
UNKNOWN_MODEL = "unknown GPU"
Dimension = UsageBucket.Dimension
_CENT = Decimal("0.01")
#: SQLite takes no more values in one question.
_MOST_VALUES = 30_000


@dataclass(frozen=True, slots=True)
class Cost:
    #: Price per hour x milliseconds: divided only to be shown, so that sums stay exact.
    times_ms: Decimal = Decimal(0)
    #: Milliseconds of GPUs whose model had no price then; they are not in the amount.
    unpriced: int = 0

    @property
    def amount(self) -> Decimal:
        return self.times_ms / HOUR

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.times_ms + other.times_ms, self.unpriced + other.unpriced)

    def __sub__(self, other: "Cost") -> "Cost":
        return Cost(self.times_ms - other.times_ms, self.unpriced - other.unpriced)


@dataclass(frozen=True)
class Row:
    #: The number of a user, group or job, the name of a host or GPU model; None: all others together.
    key: int | str | None
    label: str
    amount: Amount
    cost: Cost

    @property
    def money(self) -> Decimal | None:
        """The cost to the cent; None: nothing of it had a price."""
        if self.cost.unpriced == self.amount.held and self.amount.held:
            return None
        return self.cost.amount.quantize(_CENT)


@dataclass(frozen=True)
class Report:
    asked: Asked
    total: Row
    #: By time held. What the viewer may not read by name, and what is left out, is one row at the end.
    rows: Sequence[Row]
    #: How many the last row stands for, if the viewer may know.
    left_out: int
    timeline: Timeline

    @property
    def currency(self) -> str:
        return str(settings.TIDEPOOL_CURRENCY)


def report(viewer: Asking, asked: Asked, now: int, most_rows: int | None = None) -> Report:
    """Report on a window, by the same number of queries whatever the cluster did."""
    window = Window.read(asked, now)
    prices = PriceList(GpuPrice.objects.order_by("valid_from"), asked.start, asked.end)
    total = _row(None, "Total", window.totals(prices.borders), prices)
    by_subject: dict[int | str, dict[tuple[int | str, str, int], Amount]] = defaultdict(dict)
    sums, count = window.sums(prices.borders, _named(viewer, asked.dimension), most_rows)
    for key, amount in sums.items():
        by_subject[key[0]][key] = amount
    held = {subject: sum(amount.held for amount in own.values()) for subject, own in by_subject.items()}
    # Of those who held as much: as the database orders them.
    shown = sorted(held, key=lambda subject: (-held[subject], isinstance(subject, str), subject))[:most_rows]
    labels = _labels(asked.dimension, shown)
    rows = [_row(subject, labels[subject], by_subject[subject], prices) for subject in shown]
    rest = _minus(total, rows)
    if rest.amount.held:
        rows.append(rest)
    bands = {subject: labels[subject] for subject in shown[:MAX_BANDS]}
    return Report(asked, total, rows, count - len(shown), window.timeline(bands))


class PriceList:
    """The prices that hold at some time of a window. A day begins at midnight in UTC."""

    def __init__(self, prices: Iterable[GpuPrice], start: int, end: int) -> None:
        """`prices`: the oldest first."""
        self._by_model: dict[str, list[tuple[int, Decimal]]] = defaultdict(list)
        for price in prices:
            midnight = to_ms(datetime.combine(price.valid_from, time(), UTC))
            self._by_model[price.gpu_model].append((midnight, price.per_hour))
        #: Where one of them changes within the window: period n begins at the n-th.
        self.borders = sorted({at for steps in self._by_model.values() for at, _ in steps if start < at < end})
        self._starts = [start, *self.borders]

    def cost(self, gpu_model: str, period: int, milliseconds: int) -> Cost:
        at = self._starts[period]
        known = [price for valid_from, price in self._by_model.get(gpu_model, ()) if valid_from <= at]
        return Cost(known[-1] * milliseconds) if known else Cost(unpriced=milliseconds)


def _row(key: int | str | None, label: str, sums: Sums, prices: PriceList) -> Row:
    costs = (prices.cost(model, period, amount.held) for (_, model, period), amount in sums.items())
    return Row(key, label, sum(sums.values(), NOTHING), sum(costs, Cost()))


def _minus(total: Row, rows: Iterable[Row]) -> Row:
    amount, cost = total.amount, total.cost
    for row in rows:
        amount, cost = amount - row.amount, cost - row.cost
    return Row(None, "others", Amount(*(max(0, part) for part in amount.parts)), cost)


def _named(viewer: Asking, dimension: int) -> Collection[int] | None:
    """The numbers of users or jobs that the viewer may read the names of; None: all.

    Everybody reads the cluster's sums; of people and their trainings one's own. Who administers an instance group reads
    the names of its members and of the trainings in it, cluster admins all.
    """
    if is_cluster_admin(viewer) or dimension not in (Dimension.USER, Dimension.JOB):
        return None
    if dimension == Dimension.JOB:
        administered = InstanceGroup.objects.filter(admins=viewer.pk)
        jobs = Job.objects.filter(Q(owner=viewer.pk) | Q(instance_group__in=administered))
        return jobs.order_by().values_list("pk", flat=True)
    members = Q(instance_groups__admins=viewer.pk) | Q(jobs__instance_group__admins=viewer.pk)
    return User.objects.filter(Q(pk=viewer.pk) | members).order_by().values_list("pk", flat=True).distinct()


def _labels(dimension: int, subjects: Sequence[int | str]) -> Mapping[int | str, str]:
    if dimension in (Dimension.HOST, Dimension.GPU_MODEL):
        return {subject: str(subject) or UNKNOWN_MODEL for subject in subjects}
    rows = {
        Dimension.USER: User.objects.values_list("pk", "username"),
        Dimension.GROUP: InstanceGroup.objects.values_list("pk", "name"),
        Dimension.JOB: Job.objects.order_by().values_list("pk", "name"),
    }[Dimension(dimension)]
    found: dict[int, str] = {}
    for start in range(0, len(subjects), _MOST_VALUES):
        found |= dict(rows.filter(pk__in=subjects[start : start + _MOST_VALUES]))
    return {subject: found.get(int(subject), f"number {subject}") for subject in subjects}
