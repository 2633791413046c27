"""Check that a cookie alone changes nothing: a form needs its token, also where no browser names the page."""

import pytest

from tests.permissions import EVERYBODY, NOBODY, REFUSED, rule_of
from tests.webapp.permissions.matrix import LINES, ROUTES, World, outcome

pytestmark = pytest.mark.django_db

#: WMLA's clients post to the deep learning addresses with the cookie alone; see `wmla.base_view.SessionCookie`.
_CHANGES = [line for line in LINES if not line.startswith("GET ") and " wmla:" not in line]


@pytest.mark.parametrize("line", [line for line in _CHANGES if rule_of(line).audience not in (EVERYBODY, NOBODY)])
def test_a_cookie_alone_changes_nothing(world: World, line: str) -> None:
    method, _, name = line.partition(" ")
    assert outcome(world, ROUTES[name], method, rule_of(line), "cluster admin", by_cookie_alone=True) == REFUSED
