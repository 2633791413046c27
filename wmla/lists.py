"""Parts of long lists: WMLA's have no pages, so each takes `start` and `length`, as its list of applications does."""

from __future__ import annotations

from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

from core.errors import field_error

__all__ = ["LIST_PARAMETERS", "part_asked_for"]

Row = TypeVar("Row", bound=Model)
_MOST = 1000

LIST_PARAMETERS = [
    OpenApiParameter("start", int, description="Rows to leave out; 0 unless given."),
    OpenApiParameter("length", int, description=f"Rows at most, 1 to {_MOST}; {_MOST} unless given."),
]


def part_asked_for(request: Request, rows: QuerySet[Row, Any]) -> QuerySet[Row, Any]:
    """Return the rows that `start` and `length` ask for."""
    start = _number(request, "start", least=0, most=2**31 - 1, usual=0)
    length = _number(request, "length", least=1, most=_MOST, usual=_MOST)
    return rows[start : start + length]


def _number(request: Request, name: str, *, least: int, most: int, usual: int) -> int:
    text = request.query_params.get(name, str(usual))
    if not (text.isascii() and text.isdecimal() and len(text) < 11 and least <= int(text) <= most):
        raise field_error(name, f"Give {name} as a number from {least} to {most}.")
    return int(text)
