"""Usage reports of a window: rows with their cost, and a timeline. This module only reads.

The total is read by GPU model, and the rows shown by name separately; "others" is the difference. Amounts of money are
decimal and exact.
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
from usage.usage_query import ReportQuery
from usage.usage_window import Timeline, Window

__all__ = ["MAX_BANDS", "UNKNOWN_MODEL", "Report", "Row", "report"]

MAX_BANDS = 8
#: Label of GPUs whose host reported no model.
UNKNOWN_MODEL = "unknown GPU"
Dimension = UsageBucket.Dimension
_CENT = Decimal("0.01")
#: Below SQLite's limit of 32,766 values in one query.
_MAX_VALUES = 30_000


@dataclass(frozen=True, slots=True)
class Cost:
    #: Price per hour x milliseconds, divided only for display, so that sums stay exact.
    times_ms: Decimal = Decimal(0)
    #: Milliseconds of GPUs whose model had no price at the time; not in the amount.
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
    #: Id of a user, group or job, or name of a host or GPU model; None: the total, or all others together.
    key: int | str | None
    label: str
    amount: Amount
    cost: Cost

    @property
    def money(self) -> Decimal | None:
        """Cost to the cent; None: no GPU had a price."""
        if self.cost.unpriced == self.amount.held and self.amount.held:
            return None
        return self.cost.amount.quantize(_CENT)


@dataclass(frozen=True)
class Report:
    query: ReportQuery
    total: Row
    #: Sorted by time held. Subjects that the viewer may not see by name, or beyond the limit, are the last row.
    rows: Sequence[Row]
    #: Number of subjects beyond the limit that the viewer may see.
    left_out: int
    timeline: Timeline

    @property
    def currency(self) -> str:
        return str(settings.TIDEPOOL_CURRENCY)


def report(viewer: Asking, query: ReportQuery, now: int, most_rows: int | None = None) -> Report:
    """Return the report of a window. The number of queries does not depend on the data."""
    window = Window.read(query, now)
    prices = PriceList(GpuPrice.objects.order_by("valid_from"), query.start, query.end)
    total = _row(None, "Total", window.totals(prices.borders), prices)
    by_subject: dict[int | str, dict[tuple[int | str, str, int], Amount]] = defaultdict(dict)
    sums, count = window.sums(prices.borders, _named(viewer, query.dimension), most_rows)
    for key, amount in sums.items():
        by_subject[key[0]][key] = amount
    held = {subject: sum(amount.held for amount in own.values()) for subject, own in by_subject.items()}
    # Ties are ordered by subject, as `StoredSums.largest` does.
    shown = sorted(held, key=lambda subject: (-held[subject], isinstance(subject, str), subject))[:most_rows]
    labels = _labels(query.dimension, shown)
    rows = [_row(subject, labels[subject], by_subject[subject], prices) for subject in shown]
    rest = _minus(total, rows)
    if rest.amount.held:
        rows.append(rest)
    bands = {subject: labels[subject] for subject in shown[:MAX_BANDS]}
    return Report(query, total, rows, count - len(shown), window.timeline(bands))


class PriceList:
    """Prices of all models within a window. Days begin at midnight in UTC."""

    def __init__(self, prices: Iterable[GpuPrice], start: int, end: int) -> None:
        """prices: sorted by day, oldest first."""
        self._by_model: dict[str, list[tuple[int, Decimal]]] = defaultdict(list)
        for price in prices:
            midnight = to_ms(datetime.combine(price.valid_from, time(), UTC))
            self._by_model[price.gpu_model].append((midnight, price.per_hour))
        #: Times within the window at which a price changes: period n begins at the n-th.
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
    """Return the ids of the users or jobs whose names the viewer may see; None: all.

    Users see the sums of the cluster, and the names of themselves and their trainings. Administrators of an instance
    group also see the names of its members and trainings; administrators of the cluster see all names.
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
    for start in range(0, len(subjects), _MAX_VALUES):
        found |= dict(rows.filter(pk__in=subjects[start : start + _MAX_VALUES]))
    return {subject: found.get(int(subject), f"number {subject}") for subject in subjects}
