"""Helpers for the views of all apps: pages of a list, refusals, errors of forms, notices, 404, the user."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from django import forms
from django.contrib import messages
from django.contrib.auth.models import AnonymousUser, User
from django.contrib.messages.storage.base import Message
from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest
from django.utils.functional import SimpleLazyObject

from core.errors import UserError
from core.keyset import KeysetPage, Order, keyset_page
from core.roles import Asking, is_cluster_admin, may_change

__all__ = [
    "PAGE_SIZE",
    "Undo",
    "carried_out",
    "done",
    "login_user",
    "or_404",
    "page_of",
    "role_of_reader",
    "say",
    "show_error",
    "undo_of",
]

PAGE_SIZE = 50

Row = TypeVar("Row", bound=Model)
Thing = TypeVar("Thing")


def page_of(request: HttpRequest, rows: QuerySet[Row], order: Order) -> KeysetPage[Row]:
    """Return the page of a list that the address selects. Raises UserError for an invalid position."""
    return keyset_page(rows, order, request.GET.dict(), PAGE_SIZE)


def done(request: HttpRequest, action: Callable[[], object]) -> bool:
    """Run an action. Return False, and show a message, if it is refused."""
    try:
        action()
    except UserError as error:
        messages.error(request, error.message)
        return False
    return True


def show_error(form: forms.BaseForm, error: UserError) -> None:
    """Put an action's error beside the fields it names, or above the form."""
    for name, sentences in error.fields.items():
        form.add_error(name if name in form.fields else None, ValidationError(sentences))
    if not error.fields:
        form.add_error(None, error.message)


def misfits(form: forms.BaseForm) -> dict[str, Any]:
    """Return the errors of a form that is being filled in, by field, and the required fields that are still empty."""
    found = form.errors.get_json_data()
    return {
        "errors": {name: [error["message"] for error in errors] for name, errors in found.items()},
        "awaited": [name for name, errors in found.items() if any(error["code"] == "required" for error in errors)],
    }


@dataclass(frozen=True)
class Undo:
    """The form that is posted to undo an action."""

    address: str
    fields: Mapping[str, str]


def say(request: HttpRequest, sentence: str, *, undo: Undo | None = None) -> None:
    """Show a sentence once, on the next page that the user opens."""
    tags = json.dumps([undo.address, dict(undo.fields)]) if undo else ""
    messages.success(request, sentence, extra_tags=tags)


def undo_of(message: Message) -> Undo | None:
    """Return the undo that `say` was given; messages carry it in their tags."""
    if not message.extra_tags:
        return None
    address, fields = json.loads(message.extra_tags)
    return Undo(address, fields)


def carried_out(request: HttpRequest, form: forms.BaseForm, action: Callable[[], Thing]) -> Thing | None:
    """Run an action with a posted form. Return its result, or None with errors in the form."""
    if request.method != "POST" or not form.is_valid():
        return None
    try:
        return action()
    except UserError as error:
        show_error(form, error)
        return None


def or_404(thing: Thing | None) -> Thing:
    if thing is None:
        raise Http404
    return thing


def login_user(request: HttpRequest) -> User:
    """Return the user, who is logged in: `webapp.middleware.LoginRequired` admits nobody else."""
    assert isinstance(request.user, User)
    return request.user


def role_of_reader(request: HttpRequest) -> dict[str, Any]:
    """Return the user's role for templates: `looks_only` is true for viewers, who are offered no changes."""
    user: Asking = getattr(request, "user", AnonymousUser())
    return {
        "is_cluster_admin": SimpleLazyObject(lambda: is_cluster_admin(user)),
        "looks_only": SimpleLazyObject(lambda: not may_change(user)),
    }
