"""Each address that takes nothing but a form leads a browser to a page, for instance after a log-in."""

import pytest
from django.test import Client

from tests.permissions import ONLY_OWNER_CHANGES, rule_of
from tests.webapp.permissions.matrix import LINES, ROUTES, World, address_of

pytestmark = pytest.mark.django_db

FORMS = [line for line in LINES if line.startswith("POST ") and not ROUTES[line.removeprefix("POST ")].is_api]


@pytest.mark.parametrize("line", FORMS)
def test_a_browser_that_opens_the_address_of_a_form_gets_a_page(world: World, line: str) -> None:
    route = ROUTES[line.removeprefix("POST ")]
    browser = Client()
    role = "owner" if rule_of(line).audience == ONLY_OWNER_CHANGES else "cluster admin"
    browser.cookies["tidepool_session"] = world.sessions[role]
    answer = browser.get(
        address_of(world, route, rule_of(line)), headers={"accept": "text/html,*/*;q=0.8"}, follow=True
    )
    assert answer["Content-Type"] == "text/html; charset=utf-8"
    assert answer.status_code in (200, 400)  # 400: a page that says why there is no form, as for a pattern of no log
