"""The statuses that the API's description names, for whatever a test's client is answered."""

from functools import cache
from threading import Lock
from typing import Any
from unittest.mock import patch

from django.db import connection
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from drf_spectacular.generators import SchemaGenerator

SERVER_ERRORS = 500

#: Held while the API is described: drf-spectacular loads its extensions meanwhile, which two threads cannot at once.
_describing = Lock()

__all__ = ["refuse_what_is_not_described"]


def refuse_what_is_not_described(request: HttpRequest, response: HttpResponseBase) -> None:
    """Methods and addresses that the description leaves out answer as they like, and so do mistakes of ours."""
    match = request.resolver_match
    if match is None or match.namespaces not in (["api"], ["wmla"]) or response.status_code >= SERVER_ERRORS:
        return
    with _describing:
        statuses = _statuses()
    named = statuses.get((match.route, request.method or ""))
    assert named is None or str(response.status_code) in named, (
        f"{request.method} {match.route} answers {response.status_code}, which core/schema.py does not name"
    )


@cache
def _statuses() -> dict[tuple[str, str], frozenset[str]]:
    """Map route and method to statuses. Takes a second, once in a process that asks the API; counts no queries."""
    generator: Any = SchemaGenerator()  # type: ignore[no-untyped-call]
    with patch.object(connection, "force_debug_cursor", False):
        paths = generator.get_schema(public=True)["paths"]
    return {
        (route, method): frozenset(paths[path][method.lower()]["responses"])
        for path, route, method, _ in generator._get_paths_and_endpoints()
        if method.lower() in paths.get(path, {})
    }
