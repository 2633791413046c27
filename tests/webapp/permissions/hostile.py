"""Requests with a bad value in one place: path, query, body, headers or cookie. And the fields that a view looks at."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal
from unittest.mock import patch
from urllib.parse import urlencode
from zlib import crc32

from django.db import transaction
from django.http import HttpResponse, QueryDict
from django.test import Client

from core.rest import StrictJSONParser
from tests.permissions import Rule, rule_of
from tests.webapp.permissions.matrix import ROUTES, Route, World, address_of
from wmla import base_view
from wmla.base_view import csrf_token_of

__all__ = ["Hostile", "requests_of", "send"]

Place = Literal["path", "query", "form", "json", "header"]

#: Values of a path's part, of a parameter, and of a form's field.
BAD_TEXTS = [
    "a\0b",
    "9" * 30,
    str(2**63),
    str(2**31),
    "9" * 5000,
    "-1",
    "\N{SUPERSCRIPT TWO}",
    "nan",
    "1e400",
    "0000-01-01",
    "99999-01-01",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59",
    "~1",
    "nan~1",
    f"1~{'9' * 30}",
    "9999-12-31T23:59:59-23:59~1",
    "[" * 20_000,
    "[" * 450 + "]" * 450,
    '{"a":' * 900 + "1" + "}" * 900,
    '{"a": 1e400, "b": "\\ud800"}',
    "../../etc/passwd",
    "%ff%%%",
    "\u202e",
    "x" * 20_000,
]
#: JSON texts, because a client may send what Python does not dump.
BAD_JSON = [
    r'"a\u0000b"',
    r'"\ud800"',
    "1" + "0" * 30,
    str(2**63),
    str(2**31),
    "-1",
    "1e400",
    "-1.5",
    "true",
    "null",
    "[]",
    "{}",
    "[[[{}]]]",
    r'["a\u0000b"]',
    r'{"a\u0000": "\ud800", "b": 1e400}',
    f"[{'1' + '0' * 30}]",
    "[" * 5000 + "]" * 5000,
    "[" * 450 + "]" * 450,
    '{"a":' * 900 + "1" + "}" * 900,
    '"0001-01-01T00:00:00+23:59"',
    '"9999-12-31T23:59:59-23:59"',
    '"99999-01-01"',
    json.dumps("x" * 20_000),
]
BAD_HEADERS = {
    "authorization": [
        "Bearer",
        "Bearer a\0b",
        "Bearer \xff\xfe",
        "Bearer " + "x" * 5000,
        "Basic",
        "Basic %%%",
        "Basic YQ==",
        "Basic YQBiOng=",  # a NUL in the name
        "Basic 7aCAOng=",  # a lone surrogate in the name
        "Basic OmE=",
        "\xb2 x",
    ],
    "x-auth-token": ["a\0b", "\xff", "x" * 5000, "a.b.c"],
    "x-csrftoken": ["a\0b", "\xff"],
    "upload-offset": ["-1", "9" * 30, "9" * 5000, "x", "\xb2", "a\0b"],
    "idempotency-key": ["a\0b", "x" * 5000, "\xff"],
    "last-event-id": ["a\0b", "9" * 30, "1.2.3:x", f"{'9' * 30}.{'9' * 30}.{'9' * 30}.x"],
    "range": ["bytes=-", "bytes=9-1", f"bytes={'9' * 5000}-", "a\0b"],
    "user-agent": ["a\0b", "x" * 5000, "\xff"],
    "accept": ["a\0b", "*", "a/b;q=\xb2", ";;;"],
    "content-type": ["a\0b", "application/json; charset=\xff", "multipart/form-data", "multipart/form-data; boundary="],
    "referer": ["a\0b", "http://[", "\xff"],
    "origin": ["a\0b", "http://[", "\xff", "null"],
    "if-modified-since": ["a\0b", "Thu, 99 Foo 99999 99:99:99 GMT"],
    "x-forwarded-for": ["a\0b"],
    "host": ["[", "a\0b"],
    "cookie": [
        f"{name}={value}"
        for name in ("tidepool_session", "tidepool_csrf", "tidepool_shown", "messages")
        for value in (r'"abcdefgh\000ij"', "x" * 4000, '"', r'"\377\376\377\376\377\376"', "abcdefgh\0", "a:b:c")
    ],
}
#: Lines whose requests also have every hostile header, in a run that takes a part of the values.
WITH_HEADERS = frozenset(
    {"GET overview", "POST login", "POST api:jobs", "PATCH api:upload", "GET api:job-stream", "POST wmla:execs"}
)
_PLACEHOLDER = "the hostile value"


@dataclass(frozen=True)
class Hostile:
    """A value in one place of a request."""

    place: Place
    #: Name of the parameter, field or header.
    name: str
    value: str

    def at(self, place: Place) -> dict[str, str]:
        """Return the name and the value if they belong there, or nothing."""
        return {self.name: self.value} if place == self.place and self.value else {}


_NONE = Hostile("path", "", "")


class _Recorded(dict[str, Any]):
    """Fields that note which of them are read."""

    def __init__(self, fields: Mapping[str, Any], read: set[str]) -> None:
        super().__init__(fields)
        self._read = read

    def get(self, name: Any, default: Any = None) -> Any:
        self._read.add(str(name))
        return super().get(name, default)

    def __getitem__(self, name: str) -> Any:
        self._read.add(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self._read.add(str(name))
        return super().__contains__(name)


@contextmanager
def _recording() -> Iterator[set[str]]:
    """Note the names of parameters and fields that views look at, in a query, a form or JSON."""
    read: set[str] = set()
    plain, loads = QueryDict.dict, json.loads

    def noting(method: Any) -> Any:
        def noted(fields: Any, name: Any, *args: Any, **options: Any) -> Any:
            read.add(str(name))
            return method(fields, name, *args, **options)

        return noted

    def loaded(*args: Any, **options: Any) -> Any:
        value = loads(*args, **options)
        return _Recorded(value, read) if isinstance(value, dict) else value

    def parsed(parser: Any, stream: Any, *args: Any, **options: Any) -> Any:
        return loaded(stream.read() or b"{}")

    with ExitStack() as patches:
        for name in ("get", "getlist", "__getitem__", "__contains__"):
            patches.enter_context(patch.object(QueryDict, name, noting(getattr(QueryDict, name))))
        patches.enter_context(patch.object(QueryDict, "dict", lambda fields: _Recorded(plain(fields), read)))
        patches.enter_context(patch.object(StrictJSONParser, "parse", parsed))
        patches.enter_context(patch.object(base_view, "json", SimpleNamespace(loads=loaded)))
        yield read


def requests_of(world: World, line: str, stride: int) -> Iterator["Hostile"]:
    """Yield the hostile requests of a line. stride: the part of a field's values, which differ from field to field."""
    method, _, name = line.partition(" ")
    route, rule = ROUTES[name], rule_of(line)
    fields = fields_read(world, route, method, rule)
    for name in route.parameters:
        yield from _some("path", name, BAD_TEXTS, line, stride)
    for name in fields:
        yield from _some("query", name, BAD_TEXTS, line, stride)
        if method not in ("GET", "DELETE"):
            yield from _some("form", name, BAD_TEXTS, line, stride)
        if method not in ("GET", "DELETE") and route.is_api:
            yield from _some("json", name, BAD_JSON, line, stride)
    if stride == 1 or line in WITH_HEADERS:
        for name, values in BAD_HEADERS.items():
            yield from (Hostile("header", name, value) for value in values)


def _some(place: Place, name: str, values: list[str], line: str, stride: int) -> Iterator["Hostile"]:
    first = crc32(f"{line} {place} {name}".encode()) % stride
    yield from (Hostile(place, name, value) for value in values[first::stride])


def fields_read(world: World, route: Route, method: str, rule: Rule) -> list[str]:
    """Return the names of the parameters and fields that a view looks at when it is asked as its rule says."""
    with _recording() as read:
        send(world, route, method, rule)
    return sorted(name for name in read - {"csrfmiddlewaretoken"} if re.fullmatch(r"[\w.-]+", name))


def send(world: World, route: Route, method: str, rule: Rule, hostile: Hostile = _NONE) -> HttpResponse:
    """Send the request of a rule as an administrator, with one hostile value; undo what it changes."""
    key = world.sessions["cluster admin"]
    address = address_of(world, route, rule, replaced=hostile.at("path"))
    if query := hostile.at("query"):
        address += f"{'&' if '?' in address else '?'}{urlencode(query)}"
    headers = {"cookie": f"tidepool_session={key}", "x-csrftoken": csrf_token_of(key)}
    headers |= hostile.at("header")
    kind, body = _body(world, route, method, rule, hostile)
    kind = headers.pop("content-type", kind)
    client = Client(raise_request_exception=False)
    with transaction.atomic():
        response = client.generic(method, address, body, content_type=kind, headers=headers)
        if response.streaming:
            b"".join(response.streaming_content)  # then it is closed
        transaction.set_rollback(True)
    return response


def _body(world: World, route: Route, method: str, rule: Rule, hostile: Hostile) -> tuple[str, bytes]:
    """Return the type and the content of the body."""
    body = {name: world.named(value) for name, value in rule.body.items()}
    if method == "GET":
        return "application/octet-stream", b""
    if hostile.at("form") or (method == "POST" and not route.is_api):
        # A form's view takes one without any field for a form that was not sent.
        form = {"csrfmiddlewaretoken": "x", **body, **hostile.at("form")}
        return "application/x-www-form-urlencoded", urlencode(form, doseq=True).encode()
    text = json.dumps(body | dict.fromkeys(hostile.at("json"), _PLACEHOLDER))
    for value in hostile.at("json").values():
        text = text.replace(json.dumps(_PLACEHOLDER), value)
    return "application/json", text.encode()
