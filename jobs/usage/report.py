"""The report of GPUs used in a window: sums with their cost, and a timeline. Nothing here writes.

The cluster's sums are read by GPU model, those of whoever is shown by name beside them; "others" is the difference.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jobs.models import GpuPrice
from jobs.usage.costs import Cost, Price, PriceList
from jobs.usage.intervals import NOTHING, Amount
from jobs.usage.labels import labels_of
from jobs.usage.query import Asked
from jobs.usage.visibility import Viewer, named
from jobs.usage.window import Sums, Timeline, Window

__all__ = ["MAX_BANDS", "Report", "Row", "report"]

MAX_BANDS = 8


@dataclass(frozen=True)
class Row:
    #: The number of a user, group or job, the name of a host or GPU model; None: all others together.
    key: int | str | None
    label: str
    amount: Amount
    cost: Cost


@dataclass(frozen=True)
class Report:
    asked: Asked
    total: Row
    #: By time held. What the viewer may not read by name, and what is left out, is one row at the end.
    rows: Sequence[Row]
    #: How many the last row stands for, if the viewer may know.
    left_out: int
    timeline: Timeline


def report(viewer: Viewer, asked: Asked, now: int, most_rows: int | None = None) -> Report:
    """The same number of queries whatever the cluster did."""
    window = Window.read(asked, now)
    prices = PriceList(
        [Price(*row) for row in GpuPrice.objects.values_list("gpu_model", "valid_from", "per_hour")],
        asked.start,
        asked.end,
    )
    readable = named(viewer, asked.dimension)
    total = _row(None, "Total", window.totals(prices.borders), prices)
    by_subject: dict[int | str, dict[tuple[int | str, str, int], Amount]] = defaultdict(dict)
    sums, count = window.sums(prices.borders, readable, most_rows)
    for key, amount in sums.items():
        by_subject[key[0]][key] = amount
    order = sorted(by_subject, key=lambda subject: (-_held(by_subject[subject]), _place(subject)))
    shown = order[:most_rows]
    labels = labels_of(asked.dimension, shown)
    rows = [_row(subject, labels[subject], by_subject[subject], prices) for subject in shown]
    rest = _minus(total, rows)
    if rest.amount.held:
        rows.append(rest)
    bands = {subject: labels[subject] for subject in shown[:MAX_BANDS]}
    return Report(asked, total, rows, count - len(shown), window.timeline(bands))


def _place(subject: int | str) -> tuple[int, str]:
    """Of those who held as much: as the database orders them."""
    return (subject, "") if isinstance(subject, int) else (0, subject)


def _held(sums: Sums) -> int:
    return sum(amount.held for amount in sums.values())


def _row(key: int | str | None, label: str, sums: Sums, prices: PriceList) -> Row:
    cost = Cost()
    for (_, model, period), amount in sums.items():
        cost += prices.cost(model, period, amount.held)
    return Row(key, label, sum(sums.values(), NOTHING), cost)


def _minus(total: Row, rows: Iterable[Row]) -> Row:
    amount, cost = total.amount, total.cost
    for row in rows:
        amount, cost = amount - row.amount, cost - row.cost
    return Row(None, "others", Amount(amount.held, max(0, amount.busy), max(0, amount.idle)), cost)
