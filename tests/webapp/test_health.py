"""/healthz names what is not alive."""

from datetime import timedelta

import pytest
import redis
from django.test import Client
from django.utils import timezone

from jobs.models import SchedulerLease, UnstoredEntry
from tests.factories import HostFactory, JobFactory
from webapp import health
from workers.lateness import note_mark
from workers.models import Host, Intake

pytestmark = pytest.mark.django_db


class _Broker:
    def ping(self) -> bool:
        return True


@pytest.fixture
def healthy(monkeypatch):
    monkeypatch.setattr(health, "connect", _Broker)
    SchedulerLease.objects.create(epoch=1, holder="test", expires_at=timezone.now() + timedelta(seconds=30))
    return HostFactory()


def _answer() -> tuple[int, list[str]]:
    response = Client().get("/healthz")
    return response.status_code, response.json()["missing"]


def test_everything_is_alive(healthy):
    assert _answer() == (200, [])


def test_nothing_is_alive(settings):
    settings.TIDEPOOL_BROKER_URL = "redis+socket:///nowhere.sock?virtual_host=0"
    assert _answer() == (503, ["broker", "scheduler", "executor"])


def test_a_lease_that_has_run_out(healthy):
    SchedulerLease.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert _answer() == (503, ["scheduler"])


@pytest.mark.parametrize(
    "changes",
    [{"last_report_at": None}, {"state": Host.State.OFFLINE}, {"last_report_at": timezone.now() - timedelta(hours=1)}],
)
def test_no_executor_reports(healthy, changes):
    Host.objects.update(**changes)
    assert _answer() == (503, ["executor"])


def test_it_says_how_late_reports_are_taken(healthy):
    note_mark(timezone.now() - timedelta(seconds=12))
    answer = Client().get("/healthz")
    assert answer.status_code == 200
    assert 12 <= answer.json()["reports_delay_seconds"] < 20


def test_reports_that_nobody_takes_are_no_silence_of_hosts(healthy, monkeypatch):
    note_mark(timezone.now() - timedelta(seconds=100))
    Host.objects.update(last_report_at=timezone.now() - timedelta(seconds=101))
    assert _answer() == (503, ["control"])
    SchedulerLease.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert _answer() == (503, ["scheduler"]), "nobody sends marks"
    Intake.objects.update(taken_until=timezone.now())
    assert _answer() == (503, ["scheduler", "executor"])


def test_a_broker_that_hangs_up(healthy, monkeypatch):
    def refuse() -> None:
        raise redis.ConnectionError("gone")

    monkeypatch.setattr(_Broker, "ping", lambda self: refuse())
    assert _answer() == (503, ["broker"])


def test_a_database_that_does_not_answer(healthy, monkeypatch):
    def refuse() -> bool:
        raise health.DatabaseError("disk I/O error")

    monkeypatch.setattr(health, "_database_answers", refuse)
    assert _answer() == (503, ["database"])


def test_a_report_that_cannot_be_stored_is_told_and_stops_nothing(healthy, admin_client):
    now = timezone.now()
    job = JobFactory()
    UnstoredEntry.objects.create(
        job=job, journal=f"{job.pk}.1.coordinator", number=7, host="gpu-host-1", kind="profile", data="{}",
        error="IntegrityError: of a test", first_at=now, last_at=now, set_aside_at=now, tries=3,
    )  # fmt: skip
    answer = Client().get("/healthz")
    assert (answer.status_code, answer.json()["reports"]) == (200, "not stored")
    assert "A report of a host could not be stored" in admin_client.get("/").content.decode()
    assert "IntegrityError: of a test" in admin_client.get("/hosts/").content.decode()
    UnstoredEntry.objects.update(set_aside_at=now - timedelta(days=2))
    assert "reports" not in Client().get("/healthz").json()
