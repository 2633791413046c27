"""The part *Why this speed* of a training's page: bars of 100 % by cause."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from insights.step_time.answer import PART_WORDS, why_slow
from insights.step_time.shares import Shares, SharesAt, shares_of
from jobs.models import Job, TimeByCause

__all__ = ["Bar", "bar_of", "compared_bars", "slow_part"]

#: Width of a bar, in units of its drawing, and width and height of the drawing over time.
WIDTH, HEIGHT = 1000, 120
#: Number of spans that are drawn over time.
_MOST_SPANS = 60
#: Share below which a part has no segment.
_LEAST = 0.0005


class Segment(NamedTuple):
    """A part of a bar. Lengths are in units of the drawing."""

    part: str
    label: str
    percent: str
    start: float
    length: float


class Bar(NamedTuple):
    segments: list[Segment]
    #: All parts in words, for those who do not see the bar.
    text: str


class Column(NamedTuple):
    x: float
    width: float
    segments: list[Segment]


def slow_part(job: Job) -> dict[str, Any]:
    """Return the variables of the part's template."""
    found = why_slow(job)
    now = found.recent or found.shares
    return {
        "slow": found,
        "bars": [("Newest minute", bar_of(now)), ("Since the start", bar_of(found.shares))] if now else [],
        "legend": bar_of({part: share for part, share in now.items() if share >= _LEAST}).segments,
        "ranks": [(rank, bar_of(rank.shares)) for rank in found.ranks if rank.rank is not None],
        "columns": _columns(found.points),
        "oldest_at": found.points[-_MOST_SPANS:][0].at if found.points else None,
        "newest_at": found.points[-1].at if found.points else None,
        "width": WIDTH,
        "height": HEIGHT,
    }


def compared_bars(jobs: Sequence[Job]) -> dict[str, Any]:
    """Return a bar for each job whose time is measured, in their order, and the legend of all parts in them."""
    rows = {row.job_id: row for row in TimeByCause.objects.filter(job__in=jobs)}
    measured = [(job, shares_of(rows[job.pk].points[-1]["seconds"])) for job in jobs if job.pk in rows]
    parts = {part for _, shares in measured for part, share in shares.items() if share >= _LEAST}
    return {
        "time_bars": [(job, bar_of(shares)) for job, shares in measured],
        "time_legend": [(part, label) for part, (label, _) in PART_WORDS.items() if part in parts],
    }


def bar_of(shares: Shares, length: float = WIDTH) -> Bar:
    """Return the segments in the order of `PART_WORDS`, which add up to the length."""
    segments, start = [], 0.0
    for part, (label, _) in PART_WORDS.items():
        share = shares.get(part, 0.0)
        if share >= _LEAST:
            segments.append(Segment(part, label, _percent(share), round(start, 2), round(share * length, 2)))
            start += share * length
    return Bar(segments, ", ".join(f"{each.label} {each.percent}" for each in segments))


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %" if share < 0.1 else f"{share * 100:.0f} %"


def _columns(points: Sequence[SharesAt]) -> list[Column]:
    """Return a column for each span of the newest, from left to right, all of one width."""
    newest = points[-_MOST_SPANS:]
    if len(newest) < 2:
        return []
    width = WIDTH / len(newest)
    return [
        Column(round(place * width, 2), round(width, 2), _stacked(point.shares)) for place, point in enumerate(newest)
    ]


def _stacked(shares: Mapping[str, float]) -> list[Segment]:
    return bar_of(shares, HEIGHT).segments
