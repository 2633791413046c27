"""One GPU, the same on every page: letter and color of the training that holds it, a ring for how busy it is, hatching
where it is free.

Built here and not by a template: pages show some hundred GPUs, and a template takes ten times as long for each.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from django import template
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from core.charts import job_look

__all__ = ["register"]

register = template.Library()

_FREE = mark_safe('<span class="mark free" aria-hidden="true"></span>')
_GPU = mark_safe('<span class="slot-word">GPU </span>')
_NOTHING = mark_safe("")


@register.simple_tag
def slot_tile(slot: Mapping[str, Any], *, place: str = "", in_grid: bool = False) -> SafeString:
    """Render a slot of `insights.cluster`.

    place: text before its number. in_grid: adds a line in a cell of a grid; elsewhere the focus stays on a GPU that
    becomes free.
    """
    job, is_visible = slot["job"], slot["visible"]
    return format_html(
        '<a class="slot" data-slot="{}" data-status="{}"{}{}{}{}{} title="{}">\n<span class="slot-mark">{}{}</span>\n'
        '<span class="slot-index">{}{}</span>\n<span class="slot-label" dir="auto">{}</span>\n'
        '<span class="slot-note">{}</span>{}</a>',
        *(slot["key"], slot["status"]),
        format_html(' data-job="{}"', job) if job else "",
        " data-vacating" if slot["vacating"] else "",
        " data-stale" if slot["stale"] else "",
        format_html(' href="{}"', _address(job)) if is_visible else "",
        _tabindex(is_visible=is_visible, in_grid=in_grid),
        *(slot["title"], _mark(job) if job else _FREE, _ring(slot["busy"]) if job else ""),
        *(place or _GPU, slot["index"], slot["name"], slot["note"]),
        format_html('\n<span class="slot-more">{}</span>', slot["more"]) if in_grid else "",
    )


def _tabindex(*, is_visible: bool, in_grid: bool) -> SafeString:
    if in_grid:  # the grid moves the focus itself
        return mark_safe(' tabindex="-1"') if is_visible else _NOTHING
    return mark_safe(' tabindex="0"')


def _ring(busy: int | None) -> SafeString:
    if busy is None:
        return _NOTHING
    return format_html(
        '<svg class="slot-ring" viewBox="0 0 36 36" aria-hidden="true"><circle class="slot-ring-all" cx="18" cy="18" '
        'r="16" pathLength="100" /><circle cx="18" cy="18" r="16" pathLength="100" stroke-dasharray="{} 100" /></svg>',
        busy,
    )


@lru_cache(1024)
def _address(job: int) -> str:
    return reverse("jobs:detail", args=[job])


@lru_cache(1024)
def _mark(job: int) -> SafeString:
    look = job_look(job)
    return format_html(
        '<span class="mark job-{} pattern-{}" aria-hidden="true">{}</span>', look.hue, look.pattern, look.letter
    )
