"""Small pieces of pages that need more than a variable: icons, moments, sizes, a job's mark."""

from __future__ import annotations

from datetime import datetime

from django import template
from django.forms import BoundField
from django.templatetags.static import static
from django.utils.html import format_html
from django.utils.safestring import SafeString

from webapp.lib.charts import JobLook, job_look
from webapp.lib.time import iso

register = template.Library()

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


@register.simple_tag
def icon(name: str) -> SafeString:
    """A symbol of `static/icons.svg`. It says nothing by itself: words stand beside it."""
    return format_html('<svg class="icon" aria-hidden="true"><use href="{}#{}"></use></svg>', static("icons.svg"), name)


@register.simple_tag
def moment(at: datetime | None, empty: str = "never") -> SafeString | str:
    """A time that the browser shows as "3 min ago", with the exact one on hover."""
    if at is None:
        return empty
    exact = at.strftime("%Y-%m-%d %H:%M:%S UTC")
    return format_html('<time datetime="{}" title="{}" data-relative>{}</time>', iso(at), exact, exact)


@register.filter
def size(value: int | None) -> str:
    """A number of bytes for people: 1.2 MiB."""
    if value is None:
        return "unknown"
    amount, unit = float(value), 0
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.0f} {_UNITS[unit]}" if unit == 0 else f"{amount:.1f} {_UNITS[unit]}"


@register.filter
def percent(value: float | str | None, digits: int = 0) -> str:
    """0.5 as "50 %"; nothing for nothing."""
    return "" if value is None or isinstance(value, str) else f"{value * 100:.{digits}f} %"


@register.filter
def look(job: int) -> JobLook:
    """The colour, letter and pattern that a job has everywhere."""
    return job_look(job)


@register.filter
def in_words(state: str) -> str:
    """RUNNING as "Running"."""
    return state.capitalize()


@register.filter
def control(field: BoundField) -> SafeString:
    """A form field's widget with the class that its kind needs."""
    kind = "form-select" if field.widget_type.endswith("select") else "form-control"
    return field.as_widget(attrs={"class": f"{kind} {field.field.widget.attrs.get('class', '')}".strip()})
