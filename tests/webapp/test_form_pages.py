"""The page that shows a form: where a browser gets to when the form itself can no longer be answered."""

from urllib.parse import quote

import pytest
from django.test import Client

from tests.notices import levels
from tests.scene import Scene

#: Headers of a browser that opens an address.
BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
SITE = "http://testserver"


def logged_out(address: str, **headers: str) -> str:
    """Return where a form is sent to once the log-in has ended."""
    answer = Client().post(address, {"name": "typed"}, headers={**BROWSER, **headers})
    assert answer.status_code == 302
    return str(answer["Location"])


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("page", "address", "after"),
    [
        ("/jobs/new/?model=3", "/jobs/new/?model=3", "/jobs/new/?model=3"),
        ("/jobs/3/", "/jobs/3/change/", "/jobs/3/"),
        ("/reports/3/edit/?below=2", "/reports/3/texts/", "/reports/3/edit/?below=2"),
        ("/account/tokens/", "/account/tokens/", "/account/tokens/"),
    ],
)
def test_a_log_in_leads_back_to_the_page_of_the_form(page: str, address: str, after: str) -> None:
    assert logged_out(address, referer=f"{SITE}{page}") == f"/login/?next={quote(after)}"


@pytest.mark.django_db
@pytest.mark.parametrize("referer", ["https://elsewhere.example/jobs/", "http://[", "", "/jobs/", "http://testserver"])
def test_a_log_in_leads_to_no_other_site(referer: str) -> None:
    expected = "/" if referer == SITE else "/jobs/3/change/"
    assert logged_out("/jobs/3/change/", referer=referer) == f"/login/?next={quote(expected)}"


@pytest.mark.django_db
def test_a_script_of_a_page_is_told_that_the_log_in_has_ended() -> None:
    answer = Client().post("/jobs/new/preview/", headers={"accept": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (401, "not_authenticated")


def test_an_address_leads_to_the_nearest_page_above_with_its_query(scene: Scene, carols: Client) -> None:
    job = scene.first.pk
    for address, page in [
        (f"/jobs/{job}/change/", f"/jobs/{job}/"),
        (f"/jobs/{job}/cancel/", f"/jobs/{job}/"),
        ("/jobs/columns/?state=FAILED", "/jobs/?state=FAILED"),
        ("/account/tokens/", "/account/"),
        ("/checkpoints/4/keep/", "/checkpoints/"),
        ("/logout/", "/"),
    ]:
        assert carols.get(address, headers=BROWSER)["Location"] == page


def test_programs_are_still_told_that_the_method_is_wrong(scene: Scene, carols: Client) -> None:
    assert carols.get(f"/jobs/{scene.first.pk}/change/").status_code == 405
    assert carols.get("/api/v1/me/password/", headers=BROWSER).status_code == 405


def test_a_form_from_before_another_log_in_is_shown_again(scene: Scene) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(scene.alice)
    page = f"{SITE}/account/?tab=1"
    answer = browser.post("/account/tokens/", {"name": "mine"}, headers={**BROWSER, "referer": page})
    assert (answer.status_code, answer["Location"]) == (302, "/account/?tab=1")
    shown = browser.get("/account/")
    assert levels(shown) == ["error"]
    assert "Nothing was changed" in shown.content.decode()
    refused = browser.post("/account/tokens/", headers={**BROWSER, "referer": "https://elsewhere.example/"})
    assert refused.status_code == 403
