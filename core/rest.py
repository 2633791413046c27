"""The base of all API endpoints: strict JSON, one error shape, paged lists, references by id or name."""

import json
import logging
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import IO, Any

from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.db import IntegrityError
from django.http import Http404
from django_filters.rest_framework import DjangoFilterBackend
from drf_spectacular.utils import extend_schema_field
from rest_framework import exceptions, serializers
from rest_framework.pagination import BasePagination, LimitOffsetPagination
from rest_framework.parsers import BaseParser, FormParser, JSONParser, MultiPartParser
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import remove_query_param, replace_query_param

from core.constraints import conflict_behind
from core.errors import TooMany, UserError, existing, field_error
from core.keyset import AFTER, BEFORE, KeysetPage, Order, keyset_page
from core.live import without_nan
from core.text import by_reference, whole

__all__ = [
    "PARSERS_WITH_FILES",
    "REFUSALS",
    "ByReference",
    "ErrorSerializer",
    "Filters",
    "ListPages",
    "NamedPages",
    "NumberedPages",
    "ObjectField",
    "Pages",
    "ReferenceField",
    "StrictJSONParser",
    "StrictJSONRenderer",
    "StrictSerializer",
    "error_response",
    "keyset_answer",
    "page_size_of",
    "signed_in",
    "validated",
]

logger = logging.getLogger(__name__)

#: Code of a refusal -> its sentence.
REFUSALS = {
    "not_authenticated": "Log in, or send a token, to use the API.",
    "not_found": "There is nothing at this address: check the path and the id.",
    "method_not_allowed": "The address does not support this method: see /api/v1/schema/.",
}


class ErrorSerializer(serializers.Serializer[Any]):
    error = serializers.CharField(help_text="Sentence that describes the error and what to do.")
    code = serializers.CharField()
    fields = serializers.DictField(  # type: ignore[assignment]
        child=serializers.ListField(child=serializers.CharField()), help_text="Field name -> sentences."
    )


class Filters(DjangoFilterBackend):  # type: ignore[misc]  # django-filter has no types
    """Backend that only describes a list's filters in the API's description; `core.filters.ListFilter` filters."""


class Pages(BasePagination):
    """Pagination by key instead of offset: a page costs the same at any depth, and new rows shift nothing."""

    page_size = 100
    max_page_size = 1000
    order = Order("id", descending=True, parse=whole)

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> list[Any]:
        given = request.query_params.dict()
        self._request, self._page = request, keyset_page(queryset, self.order, given, page_size_of(given))
        return self._page.rows

    def get_paginated_response(self, data: Any) -> Response:
        return Response(keyset_answer(self._request, self._page, data))

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        return _page_schema(schema)

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        words = {AFTER: "As `next` gives it.", BEFORE: "As `previous` gives it.", "page_size": "Rows, 1 to 1000."}
        common = {"in": "query", "required": False}
        types = {AFTER: "string", BEFORE: "string", "page_size": "integer"}
        return [
            {"name": name, **common, "description": text, "schema": {"type": types[name]}}
            for name, text in words.items()
        ]


class NamedPages(Pages):
    order = Order("name")


class NumberedPages(Pages):
    order = Order("number", descending=True, parse=whole)


def _page_schema(rows: dict[str, Any]) -> dict[str, Any]:
    address = {"type": "string", "nullable": True, "format": "uri"}
    return {
        "type": "object",
        "required": ["results"],
        "properties": {"next": address, "previous": address, "results": rows},
    }


def page_size_of(given: Mapping[str, str]) -> int:
    """Return the number of rows per page that the query requests."""
    text = given.get("page_size", "")
    if not text:
        return Pages.page_size
    if not (size := whole(text, 10**9 - 1)):
        raise field_error("page_size", "Use a number of rows from 1 to 1000.")
    return min(size, Pages.max_page_size)


def keyset_answer(request: Request, page: KeysetPage[Any], results: list[Any]) -> dict[str, Any]:
    """Return a page in the form of all lists: the addresses of its neighbours, and its rows."""
    address = request.build_absolute_uri()
    bare = remove_query_param(remove_query_param(address, AFTER), BEFORE)
    return {
        "next": replace_query_param(bare, AFTER, page.next) if page.next else None,
        "previous": replace_query_param(bare, BEFORE, page.previous) if page.previous else None,
        "results": results,
    }


class ListPages(LimitOffsetPagination):
    """Pagination of series that a query has already put into a list."""

    default_limit = 1000
    max_limit = 10_000

    def get_paginated_response(self, data: Any) -> Response:
        return Response({"next": self.get_next_link(), "previous": self.get_previous_link(), "results": data})

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        return _page_schema(schema)


class StrictJSONParser(JSONParser):
    def parse(self, stream: IO[Any], media_type: str | None = None, parser_context: Any = None) -> Any:
        try:
            return super().parse(stream, media_type, parser_context)
        except RecursionError:
            raise exceptions.ParseError("JSON parse error - nested too deeply") from None


class StrictJSONRenderer(JSONRenderer):
    """Renderer that always produces valid JSON: NaN becomes null, and lone surrogates are escaped."""

    ensure_ascii = True

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> Any:
        return super().render(without_nan(data), accepted_media_type, renderer_context)


@extend_schema_field({"oneOf": [{"type": "integer"}, {"type": "string"}]})
class ReferenceField(serializers.Field[int | str, Any, Any, Any]):
    """An id or a name."""

    default_error_messages = {"invalid": "Use an id or a name."}

    def to_internal_value(self, data: Any) -> int | str:
        if isinstance(data, bool) or not isinstance(data, int | str) or data == "":
            self.fail("invalid")
        return data

    def to_representation(self, value: Any) -> Any:
        return value


@extend_schema_field({"type": "object", "additionalProperties": {}})
class ObjectField(serializers.JSONField):
    """Any JSON object, or its text in a form. The action validates its content."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, str):
            try:
                data = json.loads(data)
            except (ValueError, RecursionError):
                self.fail("invalid")
        return data


class StrictSerializer(serializers.Serializer[Any]):
    """Serializer that refuses unknown fields; otherwise a misspelt field would be ignored silently."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping):
            unknown = [str(name) for name in data if name not in self.fields]
            if unknown:
                raise exceptions.ValidationError({name: [self._sentence(name)] for name in unknown})
        return super().to_internal_value(data)

    def _sentence(self, name: str) -> str:
        near = get_close_matches(name, list(self.fields), n=1)
        advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(self.fields)}."
        return f"Field {name[:80]!a} is not known: {advice}"


PARSERS_WITH_FILES: list[type[BaseParser]] = [StrictJSONParser, FormParser, MultiPartParser]


def signed_in(request: Request) -> User:
    """Return the user; the endpoint has already refused requests without a log-in."""
    assert isinstance(request.user, User)
    return request.user


def validated(serializer: type[serializers.BaseSerializer[Any]], data: Any, **context: Any) -> dict[str, Any]:
    """Return the values that `serializer` reads from `data`. Raises DRF's ValidationError."""
    given = serializer(data=data, context=context)
    given.is_valid(raise_exception=True)
    return dict(given.validated_data)


# A docstring would become the description of each address whose view has none.
class ByReference:
    #: Kind of the row, for the sentence of a 404.
    what: str

    def get_object(self: Any) -> Any:
        """Return the row of the view's queryset that the address names by id or name."""
        return existing(by_reference(self.get_queryset(), self.kwargs["reference"]), self.what)


def error_response(error: Exception, context: dict[str, Any]) -> Response | None:
    """DRF's exception handler: every refusal in one shape. Our own mistakes stay a 500, and are logged."""
    error = _translated(error)
    if isinstance(error, UserError):
        headers = {"Retry-After": str(error.retry_seconds)} if isinstance(error, TooMany) else {}
        body = {"error": error.message, "code": error.code, "fields": error.fields}
        return Response(body, status=error.status, headers=headers)
    if not isinstance(error, exceptions.APIException):
        return None
    headers = {}
    if header := getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = header
    if wait := getattr(error, "wait", None):
        headers["Retry-After"] = str(int(wait))
    return Response(_body(error), status=error.status_code, headers=headers)


def _translated(error: Exception) -> Exception:
    """Return a library's error message about invalid input, reworded in this project's style."""
    if isinstance(error, UserError | exceptions.APIException):
        return error
    if isinstance(error, Http404):
        return exceptions.NotFound()
    if isinstance(error, PermissionDenied):
        return exceptions.PermissionDenied()
    if isinstance(error, SuspiciousOperation):
        return UserError("The request is too large or malformed: send less.", code="bad_request")
    if isinstance(error, IntegrityError) and (conflict := conflict_behind(error)):
        logger.warning("refused by a constraint: %s", error)
        return conflict
    return error


def _body(error: exceptions.APIException) -> dict[str, Any]:
    if isinstance(error, exceptions.ValidationError):
        fields = _fields(error.detail)
        first = next(
            ((name, sentences[0]) for name, sentences in fields.items() if sentences), ("", "Check the input.")
        )
        sentence = first[1] if first[0] in {"", "non_field_errors"} else f"{first[0]}: {first[1]}"
        return {"error": sentence, "code": "invalid", "fields": fields}
    codes = error.get_codes()
    code = codes if isinstance(codes, str) else error.default_code
    return {"error": REFUSALS.get(code, str(error.detail)), "code": code, "fields": {}}


def _fields(detail: Any) -> dict[str, list[str]]:
    if isinstance(detail, Mapping):
        return {str(name): list(_sentences(inner)) for name, inner in detail.items()}
    return {"non_field_errors": list(_sentences(detail))}


def _sentences(detail: Any) -> Iterator[str]:
    if isinstance(detail, Mapping):
        for name, inner in detail.items():
            yield from (f"{name}: {sentence}" for sentence in _sentences(inner))
    elif isinstance(detail, list | tuple):
        for inner in detail:
            yield from _sentences(inner)
    else:
        yield str(detail)
