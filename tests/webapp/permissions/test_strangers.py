"""Who has not logged on gets in nowhere, by whatever method."""

import pytest

from tests.permissions import LOGIN
from tests.webapp.permissions.matrix import (
    ASK_THEMSELVES,
    METHODS,
    NO_SUCH_METHOD,
    ROUTES,
    World,
    is_public,
    outcome,
    rule_like,
)

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("name", sorted(name for name, route in ROUTES.items() if not is_public(route)))
def test_strangers_get_in_by_no_method(world: World, name: str) -> None:
    """Also not by those that frameworks answer by themselves."""
    route, rule = ROUTES[name], rule_like(ROUTES[name])
    methods = (*METHODS, "HEAD", "OPTIONS")

    answers = {method: outcome(world, route, method, rule, "nobody") for method in methods}
    allowed = {LOGIN} if name not in ASK_THEMSELVES else {LOGIN, NO_SUCH_METHOD}
    assert set(answers.values()) <= allowed, answers
