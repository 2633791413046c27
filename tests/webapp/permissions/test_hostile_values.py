"""No value in a path, query, body, header or cookie is a mistake of ours: each is answered, refused, or not found."""

from collections.abc import Sequence

import pytest
from django.db import connection

from tests.missing import leave_out
from tests.permissions import rule_of
from tests.webapp.permissions.hostile import requests_of, send
from tests.webapp.permissions.matrix import LINES, ROOMS, ROUTES, World

pytestmark = pytest.mark.django_db

#: A field gets one in so many of its values, and the next field others.
_SOME, _ALL = 61, 1
#: A database server is asked at one in so many addresses.
_ONE_IN = 10
#: Without a broker the site is not well, and says so.
_NOT_WELL = 503


def _mistakes(world: World, lines: Sequence[str], stride: int) -> dict[str, str]:
    """Return the answers with a 5xx, by request."""
    found = {}
    for line in lines:
        method, _, name = line.partition(" ")
        for hostile in requests_of(world, line, stride):
            response = send(world, ROUTES[name], method, rule_of(line), hostile)
            if response.status_code >= 500 and response.status_code != _NOT_WELL:
                error = repr(response.exc_info[1]) if response.exc_info else ""
                found[f"{line}: {hostile.place} {hostile.name}={hostile.value[:40]!a}"] = error[:200]
    return found


@pytest.mark.parametrize("stride", [_SOME, pytest.param(_ALL, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
@pytest.mark.parametrize("room", ROOMS)
def test_no_value_is_a_mistake_of_ours(world: World, room: str, stride: int) -> None:
    lines = [line for line in LINES if line.partition(" ")[2] in ROOMS[room]]
    assert _mistakes(world, lines, stride) == {}


@pytest.mark.services
@pytest.mark.parametrize(
    ("lines", "stride"),
    [
        pytest.param(LINES[::_ONE_IN], _SOME, id="some"),
        pytest.param(LINES, _ALL, id="all", marks=[pytest.mark.long, pytest.mark.timeout(3600)]),
    ],
)
def test_nor_is_one_on_postgresql(world: World, lines: Sequence[str], stride: int) -> None:
    if connection.vendor != "postgresql":
        leave_out("TIDEPOOL_DATABASE_URL names no PostgreSQL")
    assert _mistakes(world, lines, stride) == {}
