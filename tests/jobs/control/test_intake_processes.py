"""Several `take_reports` at once, killed at any time, and a broker that forgets: each entry is stored once."""

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
from django.test import override_settings
from django.utils import timezone

from core.broker import connect
from jobs.models import Job, Journal, MetricPoint, Rank
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit
from tests.jobs.control.test_intake import REPORT, message
from tests.processes import broker, database_url
from tests.waiting import wait_until
from workers.models import Host

ROOT = Path(__file__).parents[3]
HOSTS, STEPS = 4, 60


@contextmanager
def intake(url: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process that takes reports over the test's database."""
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "webapp.settings",
        "TIDEPOOL_HOME": str(settings.TIDEPOOL_HOME),
        "TIDEPOOL_BROKER_URL": url,
        "TIDEPOOL_DATABASE_URL": database_url(),
    }
    command = [sys.executable, "manage.py", "take_reports", "--skip-checks"]
    with log.open("ab") as output, subprocess.Popen(command, cwd=ROOT, env=environment, stderr=output) as process:
        try:
            yield process
        finally:
            process.terminate()


def acknowledge(cluster: Cluster) -> int:
    """Let hosts know what is stored, and return how many entries they still have to send."""
    stored = dict(Journal.objects.values_list("name", "number"))
    waiting = 0
    for host in cluster.hosts.values():
        host.acknowledged |= {name: number for name, number in stored.items() if name in host.journals}
        waiting += sum(len(lines) - host.acknowledged.get(name, 0) for name, lines in host.journals.items())
    return waiting


def send(cluster: Cluster, chance: random.Random) -> None:
    """Have each host send its report twice, in any order among those of others."""
    messages = [message(REPORT, host.report()) for host in cluster.hosts.values()] * 2
    chance.shuffle(messages)
    connect().lpush(settings.CELERY_TASK_DEFAULT_QUEUE, *messages)


@pytest.mark.django_db(transaction=True)
def test_each_entry_is_stored_once(submit: Submit, tmp_path: Path) -> None:
    cluster = Cluster.of(*(f"gpu-host-{number}" for number in range(HOSTS)), slots=2)
    jobs = [submit(max_slots=2) for _ in range(HOSTS)]
    cluster.turn(2)
    for job in jobs:
        cluster.train(job)
    for step in range(2, STEPS + 1):
        for job in jobs:
            cluster.log_step(job, step, loss=1 / step)
    chance, log = random.Random(7), tmp_path / "intake.log"
    with broker() as url, override_settings(TIDEPOOL_BROKER_URL=url), ExitStack() as running:
        first, _ = (running.enter_context(intake(url, log)) for _ in range(2))
        send(cluster, chance)
        wait_until(lambda: acknowledge(cluster) < HOSTS * STEPS, lambda: f"an intake takes reports\n{log.read_text()}")
        send(cluster, chance)
        first.send_signal(signal.SIGKILL)
        send(cluster, chance)
        connect().flushall()
        running.enter_context(intake(url, log))

        def all_stored() -> bool:
            if acknowledge(cluster) and connect().llen(settings.CELERY_TASK_DEFAULT_QUEUE) < HOSTS:
                send(cluster, chance)
            return acknowledge(cluster) == 0

        wait_until(all_stored, lambda: f"{acknowledge(cluster)} entries are left\n{log.read_text()}")
    for job in jobs:
        rows = MetricPoint.objects.filter(job=job, name="loss", step__gte=2).order_by("step")
        assert list(rows.values_list("step", "value")) == [(step, 1 / step) for step in range(2, STEPS + 1)]
        assert Job.objects.get(pk=job.pk).run.step == STEPS
    assert Rank.objects.count() == 2 * HOSTS
    states = set(Host.objects.values_list("state", flat=True))
    assert states == {Host.State.ONLINE}, f"at {timezone.now()}"
    assert "Traceback" not in log.read_text(), log.read_text()
