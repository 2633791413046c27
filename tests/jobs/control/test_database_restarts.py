"""PostgreSQL restarts, and crashes, under the intake and the scheduler: each entry is stored once, and both go on."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection
from django.test import override_settings

from core.broker import connect
from jobs.models import Job, MetricPoint
from jobs.states import JobState
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit
from tests.jobs.control.test_intake_processes import ROOT, acknowledge, intake, send
from tests.missing import leave_out
from tests.own_postgresql import OwnPostgreSQL, find_postgresql, own_postgresql
from tests.processes import broker, database_url
from tests.waiting import wait_until

pytestmark = [pytest.mark.services, pytest.mark.django_db(transaction=True)]

HOSTS, STEPS = 3, 90


@pytest.fixture
def database() -> Iterator[OwnPostgreSQL]:
    """A server of the test's own with a copy of its database, in whose place it stands."""
    programs = find_postgresql()
    if connection.vendor != "postgresql" or programs is None:
        leave_out("TIDEPOOL_DATABASE_URL names no PostgreSQL, or this machine has no server to start")
    with own_postgresql(programs) as server:
        dumped = subprocess.run(
            [programs / "pg_dump", "--no-owner", f"--dbname={database_url()}"], stdout=subprocess.PIPE, check=True
        )
        filled = ["psql", "--quiet", "--set=ON_ERROR_STOP=1", f"--dbname={server.url}"]
        subprocess.run(filled, input=dumped.stdout, stdout=subprocess.DEVNULL, check=True)
        kept = dict(connection.settings_dict)
        connection.close()
        own = {"HOST": "127.0.0.1", "PORT": str(server.port), "NAME": "postgres", "USER": "tidepool", "PASSWORD": ""}
        connection.settings_dict.update(own)
        try:
            yield server
        finally:
            connection.close()
            connection.settings_dict.update(kept)


@contextmanager
def scheduler(url: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "webapp.settings",
        "TIDEPOOL_HOME": str(settings.TIDEPOOL_HOME),
        "TIDEPOOL_BROKER_URL": url,
        "TIDEPOOL_DATABASE_URL": database_url(),
    }
    command = [sys.executable, "manage.py", "run_scheduler", "--skip-checks"]
    with log.open("ab") as output, subprocess.Popen(command, cwd=ROOT, env=environment, stderr=output) as process:
        try:
            yield process
        finally:
            process.terminate()


def test_each_entry_is_stored_once_and_the_scheduler_goes_on(
    database: OwnPostgreSQL, submit: Submit, tmp_path: Path
) -> None:
    cluster = Cluster.of(*(f"gpu-host-{number}" for number in range(HOSTS)), slots=2)
    jobs = [submit(max_slots=2) for _ in range(HOSTS - 1)]
    cluster.turn(2)
    for job in jobs:
        cluster.train(job)
    chance, log = random.Random(7), tmp_path / "log"
    with broker() as url, override_settings(TIDEPOOL_BROKER_URL=url), ExitStack() as running:
        parts = [running.enter_context(intake(url, log)), running.enter_context(scheduler(url, log))]
        for last, number in ((30, signal.SIGINT), (60, signal.SIGQUIT), (STEPS, None)):
            log_steps(cluster, jobs, last)
            send(cluster, chance)
            if number is not None:  # while the intake stores them
                connection.close()
                database.stop(number)
                send(cluster, chance)
                database.start()

            def all_stored() -> bool:
                if acknowledge(cluster) and connect().llen(settings.CELERY_TASK_DEFAULT_QUEUE) < HOSTS:
                    send(cluster, chance)
                return acknowledge(cluster) == 0

            wait_until(all_stored, lambda: f"{acknowledge(cluster)} entries are left\n{log.read_text()}")
        further = submit(max_slots=2)
        wait_until(
            lambda: Job.objects.get(pk=further.pk).state == JobState.STARTING,
            lambda: f"the scheduler starts another training\n{log.read_text()}",
        )
        assert [part.poll() for part in parts] == [None, None], log.read_text()
    for job in jobs:
        rows = MetricPoint.objects.filter(job=job, name="loss", step__gte=2).order_by("step")
        assert list(rows.values_list("step", "value")) == [(step, 1 / step) for step in range(2, STEPS + 1)]
        assert (Job.objects.get(pk=job.pk).run.step, Job.objects.get(pk=job.pk).run.attempt) == (STEPS, 1)


def log_steps(cluster: Cluster, jobs: list[Job], last: int) -> None:
    """Have each training make the 30 steps up to this one; the first step of all was made before."""
    for step in range(max(2, last - 29), last + 1):
        for job in jobs:
            cluster.log_step(job, step, loss=1 / step)
