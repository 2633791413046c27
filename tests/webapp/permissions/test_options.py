"""OPTIONS, which frameworks answer by themselves, is no mistake of ours anywhere."""

import pytest

from tests.permissions import IN, LOGIN, MISSING, REFUSED
from tests.webapp.permissions.matrix import NO_SUCH_METHOD, ROOMS, ROUTES, World, outcome, rule_like

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("room", ROOMS)
def test_options_is_answered_or_refused(world: World, room: str) -> None:
    answers = {
        (name, role): outcome(world, ROUTES[name], "OPTIONS", rule_like(ROUTES[name]), role)
        for name in ROOMS[room]
        for role in ("viewer", "cluster admin")  # test_strangers.py asks for nobody
    }
    expected = {IN, LOGIN, REFUSED, MISSING, NO_SUCH_METHOD}
    assert {asked: answer for asked, answer in answers.items() if answer not in expected} == {}
