"""A control plane of real processes under the reports of simulated hosts, for `benchmarks.control_plane`.

Intake, scheduler and web server run as in production over the benchmark's own database, and a websocket client follows
the trainings that it is told of.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.typing import Origin

from benchmarks.results import Result, result
from benchmarks.simulated_hosts import REVISION, SLOTS
from benchmarks.site import looked_after, signed_in
from tests.journey.running_stack import ROOT, free_port
from tests.waiting import wait_until

#: Number of trainings that the browser follows.
FOLLOWED = 20
#: Seconds at the beginning that do not count.
WARM_UP_SECONDS = 10.0
_POLL_SECONDS = 0.5


@dataclass
class Measured:
    """Figures of one run."""

    hosts: int
    seconds: float
    #: Reports a second that all hosts together have sent, and steps.
    reports: float
    steps: float
    #: Reports that were held back, because too many waited.
    refused: int
    #: Seconds from a report's making until the browser had its steps, and from the step itself.
    to_browser: list[float]
    #: Cores, by part.
    cores: dict[str, float]
    #: Milliseconds of wall time of a cycle of the scheduler.
    cycle: float
    #: Hosts that were lost meanwhile.
    lost: int
    #: Most seconds by which the control plane was behind with reports.
    delay: float

    def rows(self) -> list[Result]:
        name = f"{self.hosts} hosts, running"
        latest = statistics.quantiles(self.to_browser, n=20)[18]
        return [
            result(f"{name}: reports", "1/s", [self.reports]),
            result(f"{name}: steps", "1/s", [self.steps]),
            result(f"{name}: report to browser", "s", self.to_browser),
            result(f"{name}: report to browser, 95 %", "s", [latest]),
            *(result(f"{name}: {part}", "cores", [cores]) for part, cores in self.cores.items()),
            result(f"{name}: scheduler's cycle", "ms", [self.cycle]),
            result(f"{name}: behind with reports, at most", "s", [self.delay]),
            result(f"{name}: hosts lost", "", [self.lost]),
        ]


def run(number: int, seconds: float, intakes: int = 1) -> list[Result]:
    """Run the control plane with so many hosts and processes of the intake, in the benchmark's own database."""
    given = fill(number)
    looked_after()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "hosts.json").write_text(json.dumps(given))
        environment = _environment()
        _empty_queues()
        processes = {
            "intake": [stack.enter_context(_part("take_reports", environment, folder, n)) for n in range(intakes)],
            "scheduler": [stack.enter_context(_part("run_scheduler", environment, folder))],
        }
        port = free_port()
        processes["web"] = [stack.enter_context(_web(port, environment, folder))]
        cookie = _cookie()
        browser = stack.enter_context(_browser(port, cookie, [one["job"] for one in given[:FOLLOWED]]))
        _hear_all()
        hosts = stack.enter_context(_hosts(folder, environment, WARM_UP_SECONDS + seconds))
        time.sleep(WARM_UP_SECONDS)
        before, cycles, begun = _cpu(processes), _cycles(), time.monotonic()
        browser.seconds.clear()
        lost, delay = set[str](), 0.0
        while hosts.poll() is None:
            lost |= _lost()
            delay = max(delay, _delay())
            time.sleep(_POLL_SECONDS)
        after, elapsed = _cpu(processes), time.monotonic() - begun
        done = json.loads(hosts.communicate()[0])
        turns, spent = (now - then for now, then in zip(_cycles(), cycles, strict=True))
        assert browser.seconds, "the browser got nothing"
        measured = Measured(
            hosts=number,
            seconds=elapsed,
            reports=done["sent"] / done["seconds"],
            steps=done["steps"] / done["seconds"],
            refused=done["refused"],
            to_browser=browser.seconds,
            cores={part: (after[part] - before[part]) / elapsed for part in after}
            | {"simulated hosts": done["cpu"] / done["seconds"]},
            cycle=1000 * spent / max(1, turns),
            lost=len(lost),
            delay=delay,
        )
    return measured.rows()


def fill(number: int) -> list[dict[str, Any]]:
    """Make the hosts, each with a training in the middle of its course on all of its GPUs."""
    from datetime import timedelta

    from django.utils import timezone

    from jobs.models import Job, JobRun, SlotClaim
    from tests.factories import (
        DatasetVersionFactory,
        InstanceGroupFactory,
        JobFactory,
        RegisteredModelVersionFactory,
        UserFactory,
    )
    from workers.host_keys import host_key
    from workers.models import CapacityPoint, Host, Slot

    now = timezone.now()
    code = {"model": RegisteredModelVersionFactory.create(), "dataset": DatasetVersionFactory.create()}
    one = JobFactory.create(owner=UserFactory.create(), instance_group=InstanceGroupFactory.create(), **code)
    of_host = {"state": "ONLINE", "ncpus": 8, "ngpus": SLOTS, "memory_bytes": 16 * 1024**3, "virtual": True}
    revisions = {"desired_revision": REVISION, "applied_revision": REVISION, "key_number": 1, "handshake": True}
    names = [f"host-{each:04}" for each in range(number)]
    hosts = Host.objects.bulk_create(Host(name=name, last_report_at=now, **of_host, **revisions) for name in names)
    CapacityPoint.objects.bulk_create(CapacityPoint(host=host, at=now, slots=SLOTS) for host in hosts)
    slots = Slot.objects.bulk_create(
        Slot(host=host, index=index, virtual=True, device_model="virtual GPU (CPU)")
        for host in hosts
        for index in range(SLOTS)
    )
    columns = {"owner": one.owner, "instance_group": one.instance_group, "reason_params": one.reason_params, **code}
    size = {"min_slots": SLOTS, "max_slots": SLOTS, "state": "RUNNING", "submitted_at": now}
    jobs = Job.objects.bulk_create(Job(name=f"training of {name}", **size, **columns) for name in names)
    began = {"attempt": 1, "slots": SLOTS, "target_slots": SLOTS, "target_revision": 1, "generation": 1}
    JobRun.objects.bulk_create(
        JobRun(job=job, lead_host=host.name, lead_number=1, first_max_slots=SLOTS, **began)
        for job, host in zip(jobs, hosts, strict=True)
    )
    SlotClaim.objects.bulk_create(
        SlotClaim(
            slot=slot, job=jobs[place // SLOTS], attempt=1, claimed_at=now, trains_from=now - timedelta(minutes=1)
        )
        for place, slot in enumerate(slots)
    )
    one.delete()
    return [
        {"name": host.name, "key": host_key(host.name, 1), "job": job.pk} for host, job in zip(hosts, jobs, strict=True)
    ]


def _environment() -> dict[str, str]:
    """Return the environment of the processes: the database is the benchmark's own."""
    from tests.processes import database_url

    return {**os.environ, "TIDEPOOL_DATABASE_URL": database_url(), "DJANGO_SETTINGS_MODULE": "webapp.settings"}


def _empty_queues() -> None:
    from core.broker import connect as broker

    broker().delete("control", *(broker().keys("host.*") or ["host."]))


@contextmanager
def _part(
    command: str, environment: dict[str, str], folder: Path, number: int = 0
) -> Iterator[subprocess.Popen[bytes]]:
    words, log = [sys.executable, "manage.py", command, "--skip-checks"], folder / f"{command}.{number}"
    with _process(words, environment, log) as process:
        yield process


@contextmanager
def _web(port: int, environment: dict[str, str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "webapp.embedded.serve", "127.0.0.1", f"http:{port}"]
    with _process(command, environment, folder / "web") as process:
        wait_until(lambda: _answers(port), lambda: f"the web server answers\n{(folder / 'web').read_text()}")
        yield process


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/login/", trust_env=False, timeout=60).status_code == 200
    except httpx.TransportError:
        return False


@contextmanager
def _process(command: list[str], environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (
        log.open("wb") as output,
        subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output) as process,
    ):
        try:
            yield process
            assert process.poll() is None, f"{command} ended"
        finally:
            process.terminate()
            process.wait()
            if text := log.read_text():
                print(text[-2000:], file=sys.stderr)


@contextmanager
def _hosts(folder: Path, environment: dict[str, str], seconds: float) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "benchmarks.simulated_hosts", str(folder / "hosts.json"), str(seconds)]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _cookie() -> str:
    from django.conf import settings

    from tests.factories import UserFactory

    client = signed_in(UserFactory.create(is_staff=True))
    return f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"


@dataclass
class Browser:
    """Seconds from a report until its steps came, of all steps of the trainings that it follows."""

    seconds: list[float] = field(default_factory=list)


@contextmanager
def _browser(port: int, cookie: str, jobs: Sequence[int]) -> Iterator[Browser]:
    found = Browser()
    at = f"127.0.0.1:{port}"
    with connect(
        f"ws://{at}/ws/live/", additional_headers={"Cookie": cookie}, origin=Origin(f"http://{at}"), max_size=None
    ) as socket:
        for job in jobs:
            socket.send(json.dumps({"subscribe": f"job.{job}", "after": 0}))

        def read() -> None:
            try:
                for text in socket:
                    now = time.time()
                    points = json.loads(text)["data"].get("metrics", [])
                    found.seconds += [now - point["value"] for point in points if point["name"] == "sent"]
            except ConnectionClosed:
                return

        thread = threading.Thread(target=read)
        thread.start()
        try:
            yield found
        finally:
            socket.close()
            thread.join()


def _cpu(processes: dict[str, list[subprocess.Popen[bytes]]]) -> dict[str, float]:
    """Return the seconds that each part has computed; the database's are those of its processes for this database."""
    from django.db import connection

    from core.broker import connect as broker

    found = {part: sum(_seconds(process.pid) for process in those) for part, those in processes.items()}
    used = broker().info("cpu")
    found["broker"] = float(used["used_cpu_user"] + used["used_cpu_sys"])
    with connection.cursor() as cursor:
        own = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        cursor.execute(own)
        pids = [pid for (pid,) in cursor.fetchall()]
    found["database"] = sum(map(_seconds, pids))
    return found


def _seconds(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def _cycles() -> tuple[int, float]:
    from jobs.models import SchedulerLease

    found = SchedulerLease.objects.values_list("cycles", "cycles_seconds").first()
    return found or (0, 0.0)


def _hear_all() -> None:
    """Let every host have been heard just now: the start of the processes may have taken as long as a lease."""
    from django.utils import timezone

    from workers.models import Host

    Host.objects.update(state=Host.State.ONLINE, last_report_at=timezone.now())


def _lost() -> set[str]:
    from workers.models import Host

    return set(Host.objects.filter(state__in=("LOST", "OFFLINE")).values_list("name", flat=True))


def _delay() -> float:
    from django.utils import timezone

    from workers.lateness import taken_until

    until = taken_until()
    return 0.0 if until is None else max(0.0, (timezone.now() - until).total_seconds())
