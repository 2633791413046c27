"""Helpers of the views of all apps: pages of a list, refusals, 404, the user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from django.contrib import messages
from django.contrib.auth.models import User
from django.core.paginator import Page, Paginator
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest
from django.utils.functional import SimpleLazyObject

from core.errors import UserError
from core.roles import may_change

__all__ = ["PAGE_SIZE", "done", "login_user", "or_404", "page_of", "role_of_reader"]

PAGE_SIZE = 50

Row = TypeVar("Row", bound=Model)
Thing = TypeVar("Thing")


def page_of(request: HttpRequest, rows: QuerySet[Row]) -> Page[Row]:
    """The page that the address asks for; the nearest one where there is no such page."""
    return Paginator(rows, PAGE_SIZE).get_page(request.GET.get("page"))


def done(request: HttpRequest, action: Callable[[], object]) -> bool:
    """Run an action; False, and a message, where it is refused."""
    try:
        action()
    except UserError as error:
        messages.error(request, error.message)
        return False
    return True


def or_404(thing: Thing | None) -> Thing:
    if thing is None:
        raise Http404
    return thing


def login_user(request: HttpRequest) -> User:
    """The user, who is logged in: `webapp.middleware.LoginRequired` lets nobody else come here."""
    assert isinstance(request.user, User)
    return request.user


def role_of_reader(request: HttpRequest) -> dict[str, Any]:
    """For templates: `looks_only` is true for viewers, whom no page offers what they may not do."""
    user = getattr(request, "user", None)
    return {"looks_only": SimpleLazyObject(lambda: user is None or not may_change(user))}
