"""Check that strangers get in nowhere, by whatever method."""

import pytest

from tests.permissions import LOGIN
from tests.webapp.permissions.matrix import (
    ASK_THEMSELVES,
    METHODS,
    NO_SUCH_METHOD,
    ROOMS,
    ROUTES,
    World,
    is_public,
    outcome,
    rule_like,
)

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("room", ROOMS)
def test_strangers_get_in_by_no_method(world: World, room: str) -> None:
    """Also not by those that frameworks answer by themselves."""
    got_in = {}
    for name in ROOMS[room]:
        route, rule = ROUTES[name], rule_like(ROUTES[name])
        allowed = {LOGIN} if name not in ASK_THEMSELVES else {LOGIN, NO_SUCH_METHOD}
        for method in () if is_public(route) else (*METHODS, "HEAD", "OPTIONS"):
            answer = outcome(world, route, method, rule, "nobody")
            if answer not in allowed:
                got_in[method, name] = answer
    assert got_in == {}
