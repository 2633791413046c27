"""Small pieces of pages that need more than a variable: icons, moments, sizes, a job's mark."""

from datetime import datetime

from django import template
from django.contrib.messages.storage.base import Message
from django.forms import BoundField
from django.templatetags.static import static
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from core.charts import JobLook, job_look
from core.pages import Undo, undo_of
from core.time import duration, iso, relative

register = template.Library()

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


@register.simple_tag
def icon(name: str) -> SafeString:
    """A symbol of `static/icons.svg`. It says nothing by itself: words stand beside it."""
    return format_html('<svg class="icon" aria-hidden="true"><use href="{}#{}"></use></svg>', static("icons.svg"), name)


@register.simple_tag
def moment(at: datetime | None, empty: str = "never") -> SafeString | str:
    """ "3 min ago", which the browser keeps right; the exact time in the viewer's zone on hover."""
    if at is None:
        return empty
    exact = at.strftime("%Y-%m-%d %H:%M:%S UTC")
    words = relative(at, timezone.now())
    return format_html('<time datetime="{}" title="{}" data-relative>{}</time>', iso(at), exact, words)


@register.simple_tag
def exact(at: datetime) -> SafeString:
    """A moment in UTC, which the browser shows in the viewer's zone, and names it."""
    return format_html('<time datetime="{}" data-exact>{}</time>', iso(at), at.strftime("%Y-%m-%d %H:%M:%S UTC"))


@register.filter
def lasting(since: str | None) -> str:
    """Render the time since a moment in JSON: "3 min 5 s"."""
    return "" if since is None else duration((timezone.now() - datetime.fromisoformat(since)).total_seconds())


@register.filter
def in_seconds(seconds: float | None) -> str:
    """A span of time for people, also a negative one: "3 min 5 s"."""
    if seconds is None:
        return "–"
    return f"−{duration(-seconds)}" if seconds < 0 else duration(seconds)


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
def decimal_size(value: int) -> str:
    """A number of bytes in powers of ten, as `bytes` of static/js/words.js has it: 1.5 MB."""
    power = min(4, (len(str(value)) - 1) // 3)
    return f"{float(f'{value / 1000**power:.3g}'):g} {('B', 'kB', 'MB', 'GB', 'TB')[power]}"


@register.filter
def percent(value: float | str | None, digits: int = 0) -> str:
    """0.5 as "50 %"; nothing for nothing."""
    return "" if value is None or isinstance(value, str) else f"{value * 100:.{digits}f} %"


@register.filter
def figure(value: float | None) -> str:
    """A number with the digits that people read: 0.1235, 12340."""
    if value is None:
        return "–"
    return f"{value:.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"


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


@register.filter
def undo(message: Message) -> Undo | None:
    """The form that takes back what the message says was done."""
    return undo_of(message)
