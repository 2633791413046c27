"""MLflow's pages on a host name of their own: a ticket leads there, and a session of the site opens nothing of them."""

from urllib.parse import urlsplit

import httpx
import pytest
from asgiref.sync import sync_to_async
from django.contrib.sessions.models import Session
from django.test import Client

from tests.tracking.test_proxy import API, alice, aof_user, below
from tracking.proxy import TrackingProxy

__all__ = ["alice"]

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = {"Accept": "text/html"}


@pytest.fixture
def open_site(mlflow, settings):
    settings.TIDEPOOL_MLFLOW_ORIGIN = "http://mlflow.example.org:8000"
    proxy = TrackingProxy(below, mlflow.transport)

    def at(base):
        return httpx.AsyncClient(transport=httpx.ASGITransport(proxy), base_url=base)

    return at("http://testserver"), at(settings.TIDEPOOL_MLFLOW_ORIGIN)


@pytest.fixture
async def browser(alice):
    browser = Client()
    await sync_to_async(browser.force_login)(alice)
    return browser


def cookie_of(browser):
    return {"Cookie": f"tidepool_session={browser.cookies['tidepool_session'].value}"}


async def address_of(site, there, browser):
    """The address with the ticket, for the browser that `there` stands for."""
    sent = await site.get("/mlflow/", headers={**cookie_of(browser), **PAGE})
    assert sent.status_code == 302
    assert sent.headers["location"].startswith("http://mlflow.example.org:8000/mlflow/enter?site=")
    back = await there.get(sent.headers["location"])
    assert "HttpOnly; SameSite=Lax" in back.headers["set-cookie"]
    assert back.headers["location"].startswith("http://testserver/mlflow/?browser=")
    assert there.cookies["tidepool_mlflow_browser"] not in back.headers["location"]
    ticket = await site.get(back.headers["location"], headers={**cookie_of(browser), **PAGE})
    assert ticket.headers["location"].startswith("http://mlflow.example.org:8000/mlflow/enter?ticket=")
    return ticket.headers["location"]


async def entered(site, there, browser):
    """The address with the ticket, and the answer to it."""
    address = await address_of(site, there, browser)
    return address, await there.get(address)


async def test_a_ticket_becomes_a_cookie_of_that_name_alone(open_site, browser, mlflow):
    site, there = open_site
    address, answer = await entered(site, there, browser)
    assert (answer.status_code, answer.headers["location"]) == (302, "/mlflow/")
    assert "HttpOnly; SameSite=Lax" in answer.headers["set-cookie"]
    assert "tidepool_session" not in answer.headers["set-cookie"]
    assert (await there.get("/mlflow/", headers=PAGE)).status_code == 200
    assert (await there.get(f"{API}experiments/search")).status_code == 200
    assert mlflow.headers[-1]["x-tidepool-user"] == "alice"
    value = answer.cookies["tidepool_mlflow"]
    there.cookies.delete("tidepool_mlflow")
    assert (await there.get(address)).status_code == 403, "it was good once"
    stolen = {"Cookie": f"tidepool_session={value}"}
    assert (await site.get(f"{API}experiments/search", headers=stolen)).status_code == 401, (
        "it is no session of the site"
    )
    assert (await sync_to_async(Client(headers=stolen).get)("/")).status_code == 302


async def test_it_is_over_with_the_session_that_it_came_from(open_site, browser, monkeypatch):
    monkeypatch.setattr("tracking.authentication._KNOWN_SECONDS", 0.0)
    site, there = open_site
    await entered(site, there, browser)
    assert (await there.get(f"{API}experiments/search")).status_code == 200
    await sync_to_async(browser.logout)()
    assert (await there.get(f"{API}experiments/search")).status_code == 401


async def test_a_stolen_ticket_opens_nothing_in_another_browser_and_is_gone(open_site, browser):
    site, there = open_site
    address = await address_of(site, there, browser)
    own = f"tidepool_mlflow_browser={there.cookies['tidepool_mlflow_browser']}"
    there.cookies.clear()
    assert (await there.get(address)).status_code == 403, "a browser without a secret"
    assert (await there.get(address, headers={"Cookie": own})).status_code == 403, "it was shown before"
    address = await address_of(site, there, browser)
    there.cookies.clear()
    other = {"Cookie": f"tidepool_mlflow_browser={'x' * 43}"}
    assert (await there.get(address, headers=other)).status_code == 403, "a browser with another one"
    assert (await there.get(f"{API}experiments/search")).status_code == 401


async def test_two_pages_that_ask_at_once_are_both_let_in(open_site, browser):
    site, there = open_site
    addresses = [await address_of(site, there, browser) for _ in range(2)]
    assert [(await there.get(each)).status_code for each in addresses] == [302, 302]


async def test_that_name_sends_no_browser_but_to_the_site_that_sent_it(open_site, browser, monkeypatch):
    site, there = open_site
    for wrong in ("", "https://elsewhere.example", "Imh0dHA6Ly90ZXN0c2VydmVyIg:1u:forged"):
        assert (await there.get(f"/mlflow/enter?site={wrong}")).status_code == 403
    named = {**cookie_of(browser), **PAGE, "Host": "elsewhere.example"}
    assert (await site.get("/mlflow/", headers=named)).status_code == 400
    address = (await site.get("/mlflow/", headers={**cookie_of(browser), **PAGE})).headers["location"]
    monkeypatch.setattr("tracking.mlflow_pages.TICKET_SECONDS", -1)
    assert (await there.get(address)).status_code == 403
    assert not there.cookies


async def test_a_ticket_that_was_not_taken_opens_nothing_and_gets_old(open_site, browser, monkeypatch):
    site, there = open_site
    key = urlsplit(await address_of(site, there, browser)).query.removeprefix("ticket=").partition(".")[0]
    forged = {"Cookie": f"tidepool_mlflow={key}"}
    assert (await there.get(f"{API}experiments/search", headers=forged)).status_code == 401
    for wrong in (f"{key}.x", f"{cookie_of(browser)['Cookie'].partition('=')[2]}.x", "", "."):
        assert (await there.get(f"/mlflow/enter?ticket={wrong}")).status_code == 403
    monkeypatch.setattr("tracking.mlflow_pages.time.time", lambda: 0.0)
    address = await address_of(site, there, browser)
    monkeypatch.setattr("tracking.mlflow_pages.time.time", lambda: 61.0)
    assert (await there.get(address)).status_code == 403
    assert await Session.objects.acount() == 2


async def test_a_session_of_the_site_opens_nothing_of_mlflow_there(open_site, browser, mlflow, alice):
    site, there = open_site
    for path in (f"{API}experiments/search", "/mlflow/static-files/main.js", "/mlflow/graphql"):
        assert (await site.get(path, headers=cookie_of(browser))).status_code == 403
        assert (await there.get(path, headers=cookie_of(browser))).status_code == 401
    assert mlflow.calls == []
    token = await aof_user(alice)
    assert [(await at.get(f"{API}experiments/search", headers=token)).status_code for at in (site, there)] == [200, 200]


async def test_that_name_shows_mlflow_and_nothing_else(open_site, browser):
    site, there = open_site
    assert (await there.get("/")).headers["location"] == "/mlflow/"
    assert (await there.get("/mlflow/", headers=PAGE)).status_code == 401, "who is not logged in begins at the site"
    for path in ("/jobs/", "/api/v1/jobs/", "/login/", "/healthz"):
        assert (await there.get(path)).status_code == 404
        assert (await site.get(path)).status_code == 299
    await entered(site, there, browser)
    for origin, status in (("http://mlflow.example.org:8000", 200), ("http://testserver", 403), ("null", 403)):
        made = await there.post(f"{API}experiments/create", headers={"Origin": origin}, json={"name": "a"})
        assert made.status_code == status


@pytest.mark.parametrize(
    ("site_url", "leads_to"),
    [("https://gpus.example.org", "https://gpus.example.org/jobs/412/"), ("", "http://127.0.0.1:8000/jobs/412/")],
)
async def test_the_link_of_a_run_leads_back_to_its_training(open_site, settings, site_url, leads_to):
    settings.TIDEPOOL_SITE_URL = site_url
    _, there = open_site
    answer = await there.get("/jobs/412/")
    assert (answer.status_code, answer.headers["location"]) == (302, leads_to)
    answer = await there.get("/studies/3/")
    assert answer.headers["location"] == leads_to.replace("/jobs/412/", "/studies/3/")
    for elsewhere in ("/jobs/412/delete/", "/studies/3/delete/", "/jobs/", "//evil.example.org/jobs/1/", "/jobs/0/"):
        assert (await there.get(f"http://mlflow.example.org:8000{elsewhere}")).status_code == 404
