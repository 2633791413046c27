"""Filters of lists: one django-filter FilterSet serves a list's page, its API and its CSV file."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar
from urllib.parse import urlencode

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet
from django.utils import timezone
from django_filters import CharFilter, ChoiceFilter, DateTimeFilter, FilterSet

from core.errors import UserError
from core.text import is_storable
from core.time import parsed_moment

__all__ = ["ListFilter", "MomentFilter", "TextField", "TextFilter", "choice_filter", "within"]

Row = TypeVar("Row", bound=Model)


class TextField(forms.CharField):
    def to_python(self, value: Any) -> str:
        text = str(super().to_python(value))
        if not is_storable(text):
            raise ValidationError("The text contains characters that no name contains: remove them.")
        return text


class _MomentField(forms.CharField):
    def to_python(self, value: Any) -> Any:
        try:
            return parsed_moment(value) if value else None
        except (ValueError, OverflowError):
            raise ValidationError("Enter a date such as 2026-03-01, or a time such as 2026-03-01T12:00Z.") from None


class TextFilter(CharFilter):  # type: ignore[misc]  # django-filter has no types
    field_class = TextField


class MomentFilter(DateTimeFilter):  # type: ignore[misc]
    """Filter by a day in UTC, or a moment."""

    field_class = _MomentField


def choice_filter(what: str, choices: Mapping[str, Any] | list[str], **options: Any) -> ChoiceFilter:
    """Return a filter by one of `choices`. `what` begins the error sentence, such as "Unknown state"."""
    sentence = f"{what}: use one of {', '.join(choices)}."
    return ChoiceFilter(
        choices=[(choice, choice) for choice in choices], error_messages={"invalid_choice": sentence}, **options
    )


def within(periods: Mapping[str, timedelta], name: str) -> datetime:
    """Return the start of the period that ends now."""
    return timezone.now() - periods[name]


class ListFilter(FilterSet):  # type: ignore[misc]
    """The filter in the parameters of an address; other parameters are ignored. Raises UserError for invalid ones."""

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        #: Parameters of the filter, without empty ones.
        self.given = {name: text for name in self.base_filters if (text := (given or {}).get(name, "").strip())}
        super().__init__(self.given)
        if problems := {name: list(sentences) for name, sentences in self.form.errors.items()}:
            raise UserError(next(iter(problems.values()))[0], fields=problems)

    @property
    def values(self) -> dict[str, Any]:
        """Return the parsed value of each parameter; None or "" for those not given."""
        found: dict[str, Any] = self.form.cleaned_data
        return found

    @property
    def address(self) -> str:
        """Return the parameters as a query string."""
        return urlencode(self.given)

    def of(self, rows: QuerySet[Row]) -> QuerySet[Row]:
        """Return the rows that match."""
        fitting: QuerySet[Row] = self.filter_queryset(rows)
        return fitting
