"""Pages, /healthz and metrics say since when MLflow is away; nothing of the site fails by that."""

import threading
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from tests.factories import JobFactory
from tracking.availability import mlflow_away_since, note
from tracking.background import MirrorLoop
from tracking.models import MirrorState
from tracking.upstream import Away

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def has_mlflow(settings):
    settings.TIDEPOOL_MLFLOW_SOCKET = "/tmp/nowhere.sock"


def test_the_first_moment_of_an_absence_stays_until_it_answers():
    now = timezone.now()
    assert mlflow_away_since(now) is None, "nobody has asked yet"
    note(now, answers=True)
    for seconds in (1, 20, 40):
        note(now + timedelta(seconds=seconds), answers=False)
    assert mlflow_away_since(now + timedelta(minutes=1)) == now + timedelta(seconds=1)
    note(now + timedelta(seconds=41), answers=True)
    assert mlflow_away_since(now + timedelta(minutes=1)) is None


def test_a_mirror_that_says_nothing_is_away_from_its_last_word():
    now = timezone.now()
    note(now, answers=True)
    assert mlflow_away_since(now + timedelta(minutes=4)) is None
    assert mlflow_away_since(now + timedelta(minutes=6)) == now


def test_a_site_without_mlflow_has_none_that_could_be_away(settings):
    note(timezone.now(), answers=False)
    settings.TIDEPOOL_MLFLOW_SOCKET = ""
    assert mlflow_away_since(timezone.now()) is None
    assert "tracking" not in Client().get("/healthz").json()


def test_the_mirror_notes_what_it_finds():
    stop = threading.Event()

    class Gone:
        def turn(self, now, between_calls):
            stop.set()
            raise Away("MLflow: connection refused")

    MirrorLoop(Gone(), stop).run()
    assert MirrorState.objects.get().away_since is not None


def test_health_the_overview_and_the_page_of_a_training_say_so(admin_client):
    note(timezone.now(), answers=False)
    answer = Client().get("/healthz")
    assert answer.json()["tracking"] == "away"
    assert "mlflow" not in answer.content.decode().lower(), "it names parts and nothing else"
    assert "MLflow, or its mirror process, does not answer" in admin_client.get("/").content.decode()
    page = admin_client.get(f"/jobs/{JobFactory().pk}/").content.decode()
    assert "The server has not answered since" in page
    note(timezone.now(), answers=True)
    assert "tracking" not in Client().get("/healthz").json()
    assert "does not answer" not in admin_client.get("/").content.decode()
