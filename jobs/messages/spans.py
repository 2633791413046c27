"""Sentences about the start or end of a training, from the span of a forecast."""

from scheduling.forecast import Span

__all__ = ["span_in_words", "starts_in"]

#: Largest ratio of latest to earliest moment at which a span reads as one moment.
_CLOSE = 1.15
_AT_ONCE_SECONDS = 1.0


def starts_in(start: Span | None) -> str:
    if start is None:
        return "Its start cannot be predicted yet: the remaining time of the trainings ahead is not known."
    if start.latest is not None and start.latest < _AT_ONCE_SECONDS:
        return "It starts within moments."
    return f"It starts {span_in_words(start)}, unless other trainings are submitted."


def span_in_words(span: Span) -> str:
    """Return the span as words: "in about 4 min", "in 4 to 6 min", "within 6 min"."""
    if span.latest is None:
        return f"in {_duration(span.earliest)} at the earliest"
    if not span.earliest and span.latest:
        return f"within {_duration(span.latest)}"
    if span.latest <= span.earliest * _CLOSE or _duration(span.earliest) == _duration(span.latest):
        return f"in about {_duration(span.latest)}"
    first, unit = _duration(span.earliest).split()
    between = first if _duration(span.latest).endswith(unit) else _duration(span.earliest)
    return f"in {between} to {_duration(span.latest)}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} min"
    if seconds < 36 * 3600:
        return f"{round(seconds / 3600)} h"
    return f"{round(seconds / 86400)} days"
