"""Methods that an address does not serve are refused, to an administrator too."""

import pytest

from tests.permissions import LOGIN, NOBODY
from tests.webapp.permissions.matrix import METHODS, NO_SUCH_METHOD, ROUTES, World, is_public, outcome, rule_like

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("name", sorted(ROUTES))
def test_methods_without_a_line_are_served_to_nobody(world: World, name: str) -> None:
    route, rule = ROUTES[name], rule_like(ROUTES[name])
    role = "nobody" if is_public(route) else "cluster admin"
    others = [method for method in METHODS if method not in route.methods]

    answers = {method: outcome(world, route, method, rule, role) for method in others}
    assert answers == dict.fromkeys(others, LOGIN if rule.audience == NOBODY else NO_SUCH_METHOD)
