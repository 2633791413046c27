"""Fixtures for every test: a throw-away home, and a cast. Alice owns things, Bob must not see them, Carol is staff."""

import gc
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.contenttypes.management import create_contenttypes
from django.core.handlers.base import BaseHandler
from django.db import connection
from django.db.models.signals import post_migrate
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.test import Client
from rest_framework.test import APIClient
from xdist.scheduler import LoadFileScheduling

from accounts.verification_limits import verifying
from tests.described import refuse_what_is_not_described
from tests.factories import UserFactory
from tests.migrated_database import migrated
from tests.runtime.process_tree import running_forkserver
from tests.scene import Scene, build_scene
from workers import lateness
from workers.executor.forkserver import Forkserver
from workers.lateness import RecentDelay

# The same examples in each run, so that a failure is the change's; `make test-full` looks for new ones, and for more.
# How long one takes says how busy the machine is.
hypothesis.settings.register_profile(
    "fixed", derandomize=True, max_examples=40, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.register_profile("exploring", print_blob=True, max_examples=500)
hypothesis.settings.load_profile("fixed")

# Another environment that is active in the shell says nothing of this one, and IPython warns of it.
os.environ.pop("VIRTUAL_ENV", None)

# Django's own permissions, which Tidepool has no use for, would be made anew whenever a test has emptied the database.
post_migrate.disconnect(dispatch_uid="django.contrib.auth.management.create_permissions")
post_migrate.disconnect(create_contenttypes)

_HOME = settings.TIDEPOOL_HOME
# Processes that tests start use the product's settings, over the home made by tests/settings.py.
os.environ["DJANGO_SETTINGS_MODULE"] = "webapp.settings"


#: Whole stacks and process trees, a minute each: what begins early keeps nobody waiting at the end. None uses the
#: database, whose tests keep the order of pytest-django: those that empty it come last.
_FIRST = ("journey/", "runtime/", *(f"workers/executor/test_{name}.py" for name in ("executor", "coordinator_care")))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Let the garbage collector leave alone what stays to the end: to go over it again and again takes seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the files that take longest first; the order within a file stays."""
    tests = Path(__file__).parent
    items.sort(key=lambda item: not item.path.relative_to(tests).as_posix().startswith(_FIRST))


class _FilesAndStacks(LoadFileScheduling):
    """Whole files go to a process of xdist, and all journeys that share a stack go to one."""

    def _split_scope(self, nodeid: str) -> str:
        folder, name, _ = nodeid.partition("/one_stack/")
        return folder + name if name else str(super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:
    return _FilesAndStacks(config, log)


def pytest_unconfigure() -> None:
    shutil.rmtree(_HOME, ignore_errors=True)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    request: pytest.FixtureRequest, django_db_modify_db_settings_parallel_suffix: None
) -> Iterator[None]:
    """Have pytest-django make the test database from a migrated copy."""
    cache = getattr(request.config, "cache", None)  # absent with `-p no:cacheprovider`
    if cache is None or connection.vendor != "sqlite":
        yield
        return
    with migrated(cache.mkdir("migrated")):
        yield


@pytest.fixture
def home(tmp_path: Path, settings: Any) -> Path:
    """A $TIDEPOOL_HOME of the test's own, with its folders."""
    settings.TIDEPOOL_HOME = tmp_path
    settings.TIDEPOOL_DATA_ROOTS = [tmp_path / "data"]
    settings.TIDEPOOL_MODEL_ROOTS = [tmp_path / "models"]
    settings.TIDEPOOL_RESULTS_ROOT = tmp_path / "results"
    for name in ("data", "models", "results"):
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.fixture(autouse=True)
def _nobody_has_failed_to_log_in() -> None:
    """All tests have one address."""
    verifying.forget()


@pytest.fixture(autouse=True)
def _no_delay_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what one test has done from the next, and the query for it from those that are counted."""
    monkeypatch.setattr(lateness, "RECENT_DELAY", RecentDelay(clock=lambda: 0.0))
    lateness.RECENT_DELAY.note(None)


@pytest.fixture(scope="session", autouse=True)
def _every_answer_is_described() -> Iterator[None]:
    """Check each answer of the API against its description, for any client in the test's own process."""
    asked = BaseHandler.get_response

    def get_response(handler: BaseHandler, request: HttpRequest) -> HttpResponseBase:
        response = asked(handler, request)
        refuse_what_is_not_described(request, response)
        return response

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseHandler, "get_response", get_response)
        yield


@pytest.fixture(scope="session")
def warm_forkserver() -> Iterator[Forkserver]:
    """One for all tests of a process: it takes seconds to load torch."""
    with running_forkserver() as (forkserver, lifeline):
        yield forkserver
        lifeline.close()  # ends the processes that a test left running


@pytest.fixture
def alice(db: None) -> User:
    return UserFactory(username="alice")


@pytest.fixture
def bob(db: None) -> User:
    return UserFactory(username="bob")


@pytest.fixture
def carol(db: None) -> User:
    return UserFactory(username="carol", is_staff=True)


@pytest.fixture
def alice_api(alice: User) -> APIClient:
    return _logged_in(alice)


@pytest.fixture
def bob_api(bob: User) -> APIClient:
    return _logged_in(bob)


@pytest.fixture
def carol_api(carol: User) -> APIClient:
    return _logged_in(carol)


@pytest.fixture
def alice_client(alice: User, client: Client) -> Client:
    client.force_login(alice)
    return client


def _logged_in(user: User) -> APIClient:
    api = APIClient()
    api.force_login(user)
    return api


@pytest.fixture
def scene(db: None, home: Path) -> Scene:
    return build_scene()


@pytest.fixture
def alices(scene: Scene) -> Client:
    return _browser_of(scene.alice)


@pytest.fixture
def bobs(scene: Scene) -> Client:
    return _browser_of(User.objects.get(username="bob"))


@pytest.fixture
def carols(scene: Scene, carol: User) -> Client:
    """Carol is staff."""
    return _browser_of(carol)


@pytest.fixture
def training(scene: Scene) -> dict[str, object]:
    """Data that the Train form sends."""
    return {
        "model": scene.model.model_id,
        "dataset": scene.dataset.dataset_id,
        "name": "mine",
        "instance_group": scene.first.instance_group_id,
        "min_slots": 1,
        "max_slots": 8,
        "priority": 5000,
        "parameters": "",
        "exactness": "sum",
        "adaptive": "script",
        "autolog": "on",
        "gpus_per_process": "script",
        "placement": "any",
    }


def _browser_of(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client
