"""Costs of GPU-hours: prices by GPU model, each from a day on. Pure; amounts of money are decimal and exact."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal

from jobs.usage.intervals import HOUR, to_ms

__all__ = ["Cost", "Price", "PriceList"]


@dataclass(frozen=True, slots=True)
class Price:
    gpu_model: str
    valid_from: date
    per_hour: Decimal


@dataclass(frozen=True, slots=True)
class Cost:
    #: Price per hour x milliseconds: divided only to be shown, so that sums stay exact.
    times_ms: Decimal = Decimal(0)
    #: Milliseconds of GPUs whose model had no price then; they are not in the amount.
    unpriced: int = 0

    @property
    def amount(self) -> Decimal:
        return self.times_ms / HOUR

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.times_ms + other.times_ms, self.unpriced + other.unpriced)

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.times_ms - other.times_ms, self.unpriced - other.unpriced)


class PriceList:
    """The prices that hold at some time of a window. A day begins at midnight in UTC."""

    def __init__(self, prices: Iterable[Price], start: int, end: int) -> None:
        by_model: dict[str, list[tuple[int, Decimal]]] = {}
        for price in sorted(prices, key=lambda price: price.valid_from):
            by_model.setdefault(price.gpu_model, []).append((_midnight(price.valid_from), price.per_hour))
        self._by_model: Mapping[str, Sequence[tuple[int, Decimal]]] = by_model
        #: Where one of them changes within the window: period n begins at the n-th.
        self.borders = sorted({at for steps in by_model.values() for at, _ in steps if start < at < end})
        self._starts = [start, *self.borders]

    def per_hour(self, gpu_model: str, period: int) -> Decimal | None:
        at = self._starts[period]
        known = [price for valid_from, price in self._by_model.get(gpu_model, ()) if valid_from <= at]
        return known[-1] if known else None

    def cost(self, gpu_model: str, period: int, milliseconds: int) -> Cost:
        price = self.per_hour(gpu_model, period)
        return Cost(unpriced=milliseconds) if price is None else Cost(price * milliseconds)


def _midnight(day: date) -> int:
    return to_ms(datetime(day.year, day.month, day.day, tzinfo=UTC))
