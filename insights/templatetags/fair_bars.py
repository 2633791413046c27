"""Bars of the fair-share page: held, borrowed and lent GPUs, with a mark at the deserved number."""

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from insights.fair_share import GroupLine, JobLine

__all__ = ["register"]

register = template.Library()


@register.simple_tag
def group_bar(line: GroupLine) -> SafeString:
    parts = [("own", line.own), ("borrowed", line.borrowed), ("lent", line.lent)]
    words = f"{line.held} held, {line.borrowed} of them borrowed; {line.lent} lent; {line.deserved:g} deserved"
    return _bar(parts, line.deserved, line.total, words)


@register.simple_tag
def job_bar(line: JobLine) -> SafeString:
    return _bar([("own", line.held)], line.deserved, line.total, f"{line.held} held, {line.deserved} deserved")


def _bar(parts: list[tuple[str, int]], deserved: float, total: int, words: str) -> SafeString:
    """Return the SVG of a bar. Screen readers read `words` for the whole picture."""
    scale = 100 / max(1, total, sum(count for _, count in parts), deserved)
    starts = [sum(count for _, count in parts[:index]) * scale for index in range(len(parts))]
    rects = format_html_join(
        "",
        '<rect class="{}" x="{}%" y="3" width="{}%" height="12"></rect>',
        [
            (kind, f"{start:.2f}", f"{count * scale:.2f}")
            for (kind, count), start in zip(parts, starts, strict=True)
            if count
        ],
    )
    place = f"{min(99.5, deserved * scale):.2f}"
    return format_html(
        '<svg class="share-bar" role="img" aria-label="{}"><rect class="track" x="0" y="3" width="100%" height="12">'
        '</rect>{}<line class="deserved" x1="{}%" x2="{}%" y1="0" y2="18"></line></svg>',
        words,
        rects,
        place,
        place,
    )
