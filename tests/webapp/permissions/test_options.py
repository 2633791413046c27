"""OPTIONS, which frameworks answer by themselves, is no mistake of ours anywhere."""

import pytest

from tests.permissions import IN, LOGIN, MISSING, REFUSED
from tests.webapp.permissions.matrix import NO_SUCH_METHOD, ROUTES, World, outcome, rule_like

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("name", sorted(ROUTES))
def test_options_is_answered_or_refused(world: World, name: str) -> None:
    for role in ("nobody", "viewer", "cluster admin"):
        answer = outcome(world, ROUTES[name], "OPTIONS", rule_like(ROUTES[name]), role)
        assert answer in {IN, LOGIN, REFUSED, MISSING, NO_SUCH_METHOD}, role
