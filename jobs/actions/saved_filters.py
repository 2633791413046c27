"""Saved filters and chosen columns of the list of jobs; each user has their own."""

from collections.abc import Mapping

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from core.errors import Conflict, NotFound, field_error
from core.text import checked_name
from jobs.models import ChosenColumns, SavedFilter
from jobs.queries.job_columns import parse_columns
from jobs.queries.job_list import JobFilter

__all__ = ["choose_columns", "forget_filter", "save_filter"]

_MAX_NAME_LENGTH = 64
_MAX_PARAMETERS = 2000


def save_filter(user: User, name: str, parameters: Mapping[str, str]) -> SavedFilter:
    """Save a filter. Raises UserError if the name is taken or invalid, or if the filter is empty."""
    name = checked_name(name, limit=_MAX_NAME_LENGTH)
    address = JobFilter(parameters).address
    if not address:
        raise field_error("parameters", "The filter is empty: set a condition before you save it.")
    if len(address) > _MAX_PARAMETERS:
        raise field_error("parameters", "The filter is too long to be saved: use shorter words.")
    try:
        with transaction.atomic():
            return SavedFilter.objects.create(owner=user, name=name, parameters=address)
    except IntegrityError:
        sentence = f"You already have a filter “{name}”: choose another name, or delete that filter."
        raise Conflict(sentence, fields={"name": [sentence]}) from None


def forget_filter(user: User, filter_id: int) -> None:
    if not SavedFilter.objects.filter(owner=user, pk=filter_id).delete()[0]:
        raise NotFound("Filter not found: look it up in the list of trainings.")


def choose_columns(user: User, text: str) -> tuple[str, ...]:
    """Store the columns `reason,metric:loss` for the user's list; "": the default ones. Raises UserError."""
    try:
        columns = parse_columns(text)
    except ValueError as error:
        raise field_error("columns", str(error)) from None
    kept = ",".join(columns)
    if len(kept) > _MAX_PARAMETERS:
        raise field_error("columns", "The names of these columns are too long to be saved: choose fewer columns.")
    if kept:
        ChosenColumns.objects.update_or_create(owner=user, defaults={"columns": kept})
    else:
        ChosenColumns.objects.filter(owner=user).delete()
    return columns
