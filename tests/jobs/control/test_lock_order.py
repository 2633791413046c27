"""No two transactions wait for each other: live topics are locked before hosts, whoever changes a host."""

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs.control.hosts import reap_lost_hosts
from jobs.control.job_end import requeue_interrupted
from jobs.control.lifecycle import raise_revisions
from tests.jobs.cluster import Cluster, FakeHost
from workers.actions import drain_host, resume_host, retire_host
from workers.models import Host

HOST = "gpu-host-1"


def fall_silent() -> None:
    reap_lost_hosts(None, timezone.now() + timedelta(hours=1))


def report_a_newer_desired() -> None:
    FakeHost(HOST, applied=99).enroll().send()


@pytest.mark.django_db
@pytest.mark.parametrize(
    "change",
    [
        lambda: drain_host(HOST, "carol"),
        lambda: retire_host(HOST),
        requeue_interrupted,
        fall_silent,
        report_a_newer_desired,
    ],
)
def test_topics_are_locked_before_hosts(cluster: Cluster, change: Callable[[], object]) -> None:
    raise_revisions(Host.objects.values_list("pk", flat=True))  # the topic is there
    with CaptureQueriesContext(
        connection,
    ) as captured:
        change()

    statements = [query["sql"] for query in captured.captured_queries]
    is_change = ('UPDATE "workers_host" SET "state"', 'UPDATE "workers_host" SET "desired_revision"')
    hosts = next(number for number, sql in enumerate(statements) if sql.startswith(is_change))
    assert any("core_topic" in sql for sql in statements[:hosts])


@pytest.mark.services
@pytest.mark.django_db(transaction=True)
def test_hosts_are_drained_while_desired_jobs_are_raised(cluster: Cluster) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("SQLite writes one transaction after the other")
    ids = list(Host.objects.values_list("pk", flat=True))
    failed: list[Exception] = []

    def drain_and_resume() -> None:
        drain_host(HOST, "carol")
        resume_host(HOST, "carol")

    def repeat(step: Callable[[], object]) -> None:
        try:
            for _ in range(100):
                step()
        except Exception as error:
            failed.append(error)
        finally:
            connections.close_all()

    steps = [drain_and_resume, lambda: raise_revisions(ids)]
    threads = [threading.Thread(target=repeat, args=[step]) for step in steps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert failed == []
