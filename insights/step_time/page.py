"""The part *Why this speed* of a training's page: bars of 100 % by cause."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from tidepool.units import cores_words, size_words

from insights.step_time.answer import PART_WORDS, why_slow
from insights.step_time.gpu_memory import MemoryAt
from insights.step_time.process_use import UseAt
from insights.step_time.shares import Shares, SharesAt, shares_of
from jobs.models import Job, TimeByCause

__all__ = ["Bar", "bar_of", "compared_bars", "slow_part"]

P = TypeVar("P")

#: Width of a bar, in units of its drawing, and width and height of the drawing over time.
WIDTH, HEIGHT = 1000, 120
#: Number of spans that are drawn over time.
_MOST_SPANS = 60
#: Figure of the processes -> its name on the page.
_FIGURES: Final = {
    "cores": "Cores",
    "gpu_busy": "GPU computes",
    "read_rate": "Read from disk",
    "written_rate": "Written to disk",
    "received_rate": "Received",
    "sent_rate": "Sent",
}
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


class MemoryColumn(NamedTuple):
    """The memory of the fullest GPU at one time. Lengths are in units of the drawing."""

    x: float
    width: float
    peak: float
    reserved: float
    title: str

    @property
    def peak_top(self) -> float:
        return round(HEIGHT - self.peak, 2)

    @property
    def reserved_top(self) -> float:
        return round(HEIGHT - self.reserved, 2)


class UseColumn(NamedTuple):
    """A figure of the processes at one time. Lengths are in units of the drawing."""

    x: float
    width: float
    top: float
    height: float
    title: str


class UseCourse(NamedTuple):
    """The course of a figure of the processes over time."""

    label: str
    #: The value that is as high as the drawing, and the newest one.
    edge: str
    newest: str
    columns: list[UseColumn]


def slow_part(job: Job) -> dict[str, Any]:
    """Return the variables of the part's template."""
    found = why_slow(job)
    now = found.recent or found.shares
    return {
        "slow": found,
        "why_no_causes": found.text.removeprefix(found.processes).strip(),
        "shows": {
            "disk": any(use.read_rate is not None or use.written_rate is not None for use in found.process_ranks),
            "network": any(use.received_rate is not None for use in found.process_ranks),
            "gpu": any(use.gpu_busy is not None for use in found.process_ranks),
        },
        "bars": [("Newest minute", bar_of(now)), ("Since the start", bar_of(found.shares))] if now else [],
        "legend": bar_of({part: share for part, share in now.items() if share >= _LEAST}).segments,
        "ranks": [(rank, bar_of(rank.shares)) for rank in found.ranks if rank.rank is not None],
        "columns": _columns(found.points),
        "memory_columns": _memory_columns(found.memory_points),
        "courses": _courses(found.process_points),
        "uses_from": found.process_points[-_MOST_SPANS:][0].at if found.process_points else None,
        "uses_until": found.process_points[-1].at if found.process_points else None,
        "oldest_at": found.points[-_MOST_SPANS:][0].at if found.points else None,
        "newest_at": found.points[-1].at if found.points else None,
        "width": WIDTH,
        "height": HEIGHT,
    }


def _memory_columns(points: Sequence[MemoryAt]) -> list[MemoryColumn]:
    """Return a column for each of the newest points: the limit is as high as the drawing."""
    return [
        MemoryColumn(
            *(x, width),
            round(min(1.0, point.peak_bytes / point.limit_bytes) * HEIGHT, 2),
            round(min(1.0, point.reserved_bytes / point.limit_bytes) * HEIGHT, 2),
            f"Step {point.step:,}: peak {size_words(point.peak_bytes)}, held {size_words(point.reserved_bytes)}",
        )
        for x, width, point in _side_by_side(points)
    ]


def _courses(points: Sequence[UseAt]) -> list[UseCourse]:
    """Return the courses of the figures that are known, and not 0 all the time."""
    found = []
    for name, label in _FIGURES.items():
        values = [getattr(point, name) for point in points[-_MOST_SPANS:]]
        known = [value for value in values if value is not None]
        most = 1.0 if name == "gpu_busy" else max(known, default=0.0)
        if columns := _use_columns(name, points, most) if any(known) else []:
            found.append(UseCourse(label, _value_words(name, most), _value_words(name, known[-1]), columns))
    return found


def _use_columns(name: str, points: Sequence[UseAt], most: float) -> list[UseColumn]:
    columns = []
    for x, width, point in _side_by_side(points):
        if (value := getattr(point, name)) is not None:
            height = round(min(1.0, value / most) * HEIGHT, 2)
            columns.append(UseColumn(x, width, round(HEIGHT - height, 2), height, _value_words(name, value)))
    return columns


def _value_words(name: str, value: float) -> str:
    if name == "cores":
        return cores_words(round(value, 1))
    return _percent(value) if name == "gpu_busy" else f"{size_words(value)}/s"


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
    return [Column(x, width, _stacked(point.shares)) for x, width, point in _side_by_side(points)]


def _side_by_side(points: Sequence[P]) -> list[tuple[float, float, P]]:
    """Return the newest points, each with the left edge and the width of its column; [] for fewer than two."""
    newest = points[-_MOST_SPANS:]
    if len(newest) < 2:
        return []
    width = WIDTH / len(newest)
    return [(round(place * width, 2), round(width, 2), point) for place, point in enumerate(newest)]


def _stacked(shares: Mapping[str, float]) -> list[Segment]:
    return bar_of(shares, HEIGHT).segments
