"""A report as the page, REST and CSV show it."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from django.conf import settings

from core.csv_text import Cell, safe_cell
from core.time import iso
from jobs.usage.intervals import HOUR, moment
from jobs.usage.report import Report, Row

__all__ = [
    "TABLE_HEAD",
    "as_json",
    "cost_of",
    "gpu_hours",
    "table_rows",
    "timeline_head",
    "timeline_rows",
]

TABLE_HEAD = (
    *("by", "id", "name", "from", "to"),
    *("allocated_seconds", "busy_seconds", "idle_seconds", "not_measured_seconds", "gpu_hours"),
    *("cost", "currency", "unpriced_seconds"),
)
_CENT = Decimal("0.01")


def as_json(report: Report) -> dict[str, Any]:
    asked, times = report.asked, report.timeline
    return {
        "from": iso(moment(asked.start)),
        "to": iso(moment(asked.end)),
        "by": asked.by,
        "currency": settings.TIDEPOOL_CURRENCY,
        "total": _row(report.total),
        "rows": [_row(row) for row in report.rows],
        "left_out": report.left_out,
        "timeline": {
            "step": None if times.step is None else times.step // 1000,
            "at": [iso(moment(at)) for at in times.edges[:-1]],
            "bands": [{"id": _id(band.key), "name": band.label, "gpus": band.gpus} for band in times.bands],
            "allocated": times.held,
            "busy": times.busy,
            "idle": times.idle,
            "capacity": times.capacity,
        },
    }


def cost_of(row: Row) -> Decimal | None:
    """None: nothing of it had a price."""
    return None if row.cost.unpriced == row.amount.held and row.amount.held else row.cost.amount.quantize(_CENT)


def gpu_hours(milliseconds: int) -> str:
    """With as many digits as say something: 0.02, 3.2, 1,234."""
    hours = milliseconds / HOUR
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.1f}" if hours >= 10 else f"{hours:.2f}"


def table_rows(report: Report) -> Iterator[list[Cell]]:
    asked = report.asked
    for row in report.rows:
        values, cost = _row(row), cost_of(row)
        yield [
            *(asked.by, values["id"], row.label, iso(moment(asked.start)), iso(moment(asked.end))),
            *(values[name] for name in TABLE_HEAD[5:9]),
            row.amount.held / HOUR,
            *(None if cost is None else str(cost), settings.TIDEPOOL_CURRENCY, values["unpriced_seconds"]),
        ]


def timeline_head(report: Report) -> list[str]:
    bands = [str(safe_cell(band.label)) for band in report.timeline.bands]
    return ["from", "to", *bands, "allocated", "busy", "idle", "capacity"]


def timeline_rows(report: Report) -> Iterator[list[Cell]]:
    times = report.timeline
    columns = [*(band.gpus for band in times.bands), times.held, times.busy, times.idle, times.capacity]
    for start, end, *values in zip(times.edges[:-1], times.edges[1:], *columns, strict=True):
        yield [iso(moment(start)), iso(moment(end)), *values]


def _row(row: Row) -> dict[str, Any]:
    cost = cost_of(row)
    return {
        "id": _id(row.key),
        "name": row.label,
        "allocated_seconds": row.amount.held / 1000,
        "busy_seconds": row.amount.busy / 1000,
        "idle_seconds": row.amount.idle / 1000,
        "not_measured_seconds": row.amount.unmeasured / 1000,
        "cost": None if cost is None else str(cost),
        "unpriced_seconds": row.cost.unpriced / 1000,
    }


def _id(key: int | str | None) -> int | None:
    """Hosts and GPU models have names only."""
    return key if isinstance(key, int) else None
