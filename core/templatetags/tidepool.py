"""Template tags and filters: icons, times, sizes, a job's mark."""

from datetime import datetime

from django import template
from django.contrib.messages.storage.base import Message
from django.forms import BaseForm, BoundField
from django.template import Context, Engine
from django.templatetags.static import static
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from tidepool.units import size_words

from core.charts import JobLook, job_look
from core.edit_forms import opened_with as values_at_opening
from core.help_links import linked
from core.pages import Undo, undo_of
from core.time import duration, exact_time, iso, relative

register = template.Library()
register.filter("linked", linked)


@register.simple_tag
def icon(name: str) -> SafeString:
    """Render a symbol of `static/icons.svg`. It is hidden from screen readers, so put words beside it."""
    return format_html('<svg class="icon" aria-hidden="true"><use href="{}#{}"></use></svg>', static("icons.svg"), name)


@register.simple_tag
def moment(at: datetime | None, empty: str = "never") -> SafeString | str:
    """Render "3 min ago", which the browser keeps right, with the date and time in the viewer's zone on hover."""
    if at is None:
        return empty
    words = relative(at, timezone.now())
    return format_html('<time datetime="{}" title="{} UTC" data-relative>{}</time>', iso(at), exact_time(at), words)


@register.simple_tag
def exact(at: datetime) -> SafeString:
    """Render date and time in UTC; the browser replaces them by those of the viewer's zone."""
    return format_html('<time datetime="{}" data-exact>{} UTC</time>', iso(at), exact_time(at))


@register.simple_block_tag(takes_context=True)
def ask(
    context: Context,
    content: SafeString,
    *,
    id: str,
    title: str,
    action: str,
    yes: str,
    keep: str = "Cancel",
    kind: str = "btn-danger",
) -> SafeString:
    """A dialog that asks before something is lost, opened by `<button type="button" data-opens="id">`.

    The content between the tags says what is lost. `yes` posts to `action`; `keep` is the other button.
    """
    with context.push(id=id, title=title, lost=content, action=action, yes=yes, keep=keep, kind=kind):
        return Engine.get_default().get_template("_ask.html").render(context)


@register.filter
def lasting(since: str | None) -> str:
    """Return the time since a moment in JSON, such as "3 min 5 s"."""
    return "" if since is None else duration((timezone.now() - datetime.fromisoformat(since)).total_seconds())


@register.filter
def in_seconds(seconds: float | None) -> str:
    """Return a duration such as "3 min 5 s", which may be negative."""
    if seconds is None:
        return "–"
    return f"−{duration(-seconds)}" if seconds < 0 else duration(seconds)


@register.filter
def size(value: int | None) -> str:
    """Return a number of bytes for people: 1.2 MiB."""
    return "unknown" if value is None else size_words(value)


@register.filter
def speed(rate: float | None) -> str:
    """Return bytes per second for people: 1.2 MiB/s; "–" for None."""
    return "–" if rate is None else f"{size_words(rate)}/s"


@register.filter
def percent(value: float | str | None, digits: int = 0) -> str:
    """Return a fraction as percent, such as "50 %" for 0.5; "" for None."""
    return "" if value is None or isinstance(value, str) else f"{value * 100:.{digits}f} %"


@register.filter
def figure(value: float | None) -> str:
    """Return a number with four significant digits, such as 0.1235 or 12340."""
    if value is None:
        return "–"
    return f"{value:.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"


@register.filter
def look(job: int) -> JobLook:
    """Return the colour, letter and pattern of a job."""
    return job_look(job)


@register.filter
def in_words(state: str) -> str:
    """Return a state for pages, such as "Running" for RUNNING."""
    return state.capitalize()


@register.filter
def control(field: BoundField) -> SafeString:
    """Render a form field's widget with the class for its kind."""
    kind = "form-select" if field.widget_type.endswith("select") else "form-control"
    return field.as_widget(attrs={"class": f"{kind} {field.field.widget.attrs.get('class', '')}".strip()})


@register.simple_tag
def opened_with(form: BaseForm) -> SafeString:
    """Render hidden inputs with the values with which the form was opened; see `core.edit_forms`."""
    return format_html_join("", '<input type="hidden" name="{}" value="{}">', values_at_opening(form))


@register.filter
def undo(message: Message) -> Undo | None:
    """Return the form that undoes the action of the message, or None."""
    return undo_of(message)
