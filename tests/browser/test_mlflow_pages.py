"""MLflow's own pages through the proxy: they work under its policy, which stops HTML artefacts' scripts alone."""

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from django.test import Client, override_settings
from playwright.sync_api import BrowserContext, Page, expect

from accounts.tokens import create_token
from tests.factories import UserFactory
from tests.tracking.clients import server_installed
from tests.tracking.real import proxy, real_server

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.long, pytest.mark.timeout(600)]

API = "/mlflow/api/2.0/mlflow/"
#: Told by the page itself: the console names the same in words.
TELLS_VIOLATIONS = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.violations.push(event.effectiveDirective);
  console.error(`VIOLATION ${event.effectiveDirective} ${event.blockedURI}`);
});
"""


@dataclass
class Seeded:
    experiment: str
    run: str


@dataclass
class Seen:
    violations: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    scripts_run: list[str] = field(default_factory=list)


@pytest.fixture
def mlflow() -> Iterator[str]:
    server_installed()
    folder = Path(tempfile.mkdtemp(prefix="tidepool-"))
    named = {"TIDEPOOL_MLFLOW_SOCKET": f"{folder}/run/s", "TIDEPOOL_MLFLOW_URL": "http://it"}
    with override_settings(TIDEPOOL_HOME=folder, **named), real_server(), proxy() as address:
        yield address
    shutil.rmtree(folder)


@pytest.fixture
def alice() -> Any:
    return UserFactory(username="alice")


@pytest.fixture
def seeded(mlflow: str, alice: Any) -> Seeded:
    headers = {"Authorization": f"Bearer {create_token(alice)}"}
    with httpx.Client(base_url=mlflow, headers=headers, timeout=60, trust_env=False) as client:

        def call(path: str, /, **values: Any) -> Any:
            return client.post(f"{API}{path}", json=values).raise_for_status().json()

        experiment = call("experiments/create", name="/Users/alice/digits")["experiment_id"]
        run = call("runs/create", experiment_id=experiment, run_name="wide", start_time=1_700_000_000_000)
        number = run["run"]["info"]["run_id"]
        for step in range(3):
            call("runs/log-metric", run_id=number, key="accuracy", value=0.5 + step / 10, step=step, timestamp=step + 1)
        call("runs/log-parameter", run_id=number, key="epochs", value="3")
        files = f"/mlflow/api/2.0/mlflow-artifacts/artifacts/{experiment}/{number}/artifacts"
        client.put(f"{files}/notes.txt", content=b"written by the script").raise_for_status()
        page = b"<h1>A report</h1><script>console.log('RUN by an artefact')</script>"
        client.put(f"{files}/report.html", content=page).raise_for_status()
        call("registered-models/create", name="alice.digits")
        call("model-versions/create", name="alice.digits", source=f"runs:/{number}/model", run_id=number)
        return Seeded(experiment, number)


@pytest.fixture
def page(context: BrowserContext, mlflow: str, alice: Any) -> Page:
    client = Client()
    client.force_login(alice)
    cookie = {"name": "tidepool_session", "value": client.cookies["tidepool_session"].value, "url": mlflow}
    context.add_cookies([cookie])  # type: ignore[list-item]
    context.add_init_script(TELLS_VIOLATIONS)
    return context.new_page()


@pytest.fixture
def seen(page: Page) -> Seen:
    seen = Seen()

    def hear(text: str) -> None:
        if text.startswith("VIOLATION") or "Content Security Policy" in text:
            seen.violations.append(text)
        if text.startswith("RUN"):
            seen.scripts_run.append(text)

    page.on("console", lambda message: hear(message.text))
    page.on("request", lambda request: seen.hosts.add(urlsplit(request.url).netloc))
    return seen


def test_its_pages_work_without_a_violation_but_that_of_an_html_artefact(
    page: Page, seen: Seen, mlflow: str, seeded: Seeded
) -> None:
    of_experiment = f"{mlflow}/mlflow/#/experiments/{seeded.experiment}"
    of_run = f"{of_experiment}/runs/{seeded.run}"
    for address, shown in (
        (f"{of_experiment}/runs", "wide"),
        (of_run, "accuracy"),
        (f"{of_run}/model-metrics", "accuracy"),
        (f"{mlflow}/mlflow/#/models", "alice.digits"),
        (f"{mlflow}/mlflow/#/models/alice.digits", "Version 1"),
        (f"{of_run}/artifacts/notes.txt", "written by the script"),
    ):
        page.goto("about:blank")
        page.goto(address)
        expect(page.get_by_text(shown).first).to_be_visible()
        assert seen.violations == [], address
    assert seen.hosts - {""} == {urlsplit(mlflow).netloc}, "it calls no other host"

    page.goto("about:blank")
    page.goto(f"{of_run}/artifacts/report.html")
    page.wait_for_function("() => window.violations.length")
    assert {text.split()[1] for text in seen.violations if text.startswith("VIOLATION")} == {"frame-src"}
    assert seen.scripts_run == [], "no script of a run's files runs"
