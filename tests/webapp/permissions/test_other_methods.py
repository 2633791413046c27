"""Methods that an address does not serve are refused, to an administrator too."""

import pytest

from tests.permissions import LOGIN, NOBODY
from tests.webapp.permissions.matrix import METHODS, NO_SUCH_METHOD, ROOMS, ROUTES, World, is_public, outcome, rule_like

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("room", ROOMS)
def test_methods_without_a_line_are_served_to_nobody(world: World, room: str) -> None:
    answers, expected = {}, {}
    for name in ROOMS[room]:
        route, rule = ROUTES[name], rule_like(ROUTES[name])
        role = "nobody" if is_public(route) else "cluster admin"
        for method in (method for method in METHODS if method not in route.methods):
            answers[method, name] = outcome(world, route, method, rule, role)
            expected[method, name] = LOGIN if rule.audience == NOBODY else NO_SUCH_METHOD
    assert answers == expected
