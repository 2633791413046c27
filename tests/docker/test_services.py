"""docker-compose.yml without a container engine: its services as processes, on a real PostgreSQL and Redis.

They start in their order, wait for each other by their own health checks, play the tutorial on two hosts, of which the
second joins by its one command, lose nothing to a restart of the whole control plane, and stop.
"""

import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
import redis
from django.conf import settings
from django.db import connection

from tests.docker.documents import commands
from tests.docker.local_services import SERVICES, LocalServices
from tests.journey.training import Training, cancel_all, register_recorder
from tests.missing import leave_out
from tests.waiting import wait_until
from workers.executor.saved_state import load_json

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def services() -> Iterator[LocalServices]:
    if connection.vendor != "postgresql" or not settings.TIDEPOOL_BROKER_URL.startswith("redis://"):
        leave_out("TIDEPOOL_DATABASE_URL and TIDEPOOL_BROKER_URL name no PostgreSQL and Redis")
    # Short: unix sockets lie below it.
    local = LocalServices(Path(tempfile.mkdtemp(prefix="tide-")))
    local.prepare()
    with local.own_database():
        try:
            for name in SERVICES:
                local.start(name)
            yield local
        finally:
            local.end_everything()
            shutil.rmtree(local.folder)


def broker(services: LocalServices, user: str, password: str) -> redis.Redis:
    return redis.Redis(port=services.broker_port, username=user, password=password, decode_responses=True)


def admin(services: LocalServices) -> httpx.Client:
    login = ("admin", services.secret("admin-password"))
    return httpx.Client(base_url=f"{services.url}/api/v1/", auth=login, timeout=30, trust_env=False)


def hosts(services: LocalServices) -> dict[str, str]:
    with admin(services) as api:
        return {host["name"]: host["state"] for host in api.get("hosts/").json()["results"]}


class SecretsWatch(threading.Thread):
    """Looks for secrets in every environment and command line, as long as it runs."""

    def __init__(self, services: LocalServices) -> None:
        super().__init__(daemon=True)
        self._services = services
        passwords = ("admin-password", "broker-password", "executor-broker-password", "database-password")
        self._secrets = [services.secret(name) for name in passwords]
        self._over = threading.Event()
        self.looked_at: set[str] = set()
        self.found: set[str] = set()

    def run(self) -> None:
        while not self._over.wait(0.5):
            for process in self._services.processes():
                self._look(process)

    def _look(self, process: psutil.Process) -> None:
        try:
            environment, arguments = process.environ(), process.cmdline()
        except psutil.Error:
            return
        mark = environment.get("TIDEPOOL_MARK", "").strip().split(".")
        self.looked_at.add(mark[4] if len(mark) > 4 else "service")
        if any(secret in word for secret in self._secrets for word in [*environment.values(), *arguments]):
            self.found.add(" ".join(arguments))

    def __enter__(self) -> "SecretsWatch":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()


def test_a_second_machine_joins_by_one_command(services):
    made = services.manage("join_token", "--url", services.url)
    assert made.returncode == 0, made.stderr
    token = made.stdout.split("--token ")[1].strip()
    services.start_executor_of_another_machine("second", token, TIDEPOOL_VIRTUAL_SLOTS="4")
    wait_until(lambda: hosts(services) == {"first": "ONLINE", "second": "ONLINE"}, "both hosts are online")
    kept = services.pool / "run/second/broker-url"
    assert kept.stat().st_mode & 0o777 == 0o600


def test_the_tutorial_is_played_and_no_secret_is_seen_meanwhile(services):
    with SecretsWatch(services) as watch:
        played = services.manage("tutorial", "--url", services.url, "--look", "1")
    with admin(services) as api:
        cancel_all(api)
    logs = "\n".join(services.log(name) for name in services.running)
    assert played.returncode == 0, played.stdout + played.stderr + logs
    assert played.stdout.splitlines()[-1] == "All 5 moments were seen."
    assert watch.found == set()
    assert {"service", "shim", "coordinator", "rank"} <= watch.looked_at


def test_executors_may_do_all_that_they_need_and_little_else(services):
    refused = broker(services, "inspector", "any").acl_log()
    assert [entry for entry in refused if entry["username"] == "executor"] == []
    executor = broker(services, "executor", services.secret("executor-broker-password"))
    for command in (
        ("PUBLISH", "tidepool.live", "{}"),
        ("PUBLISH", "tidepool.wake", ""),
        ("SUBSCRIBE", "tidepool.live"),
        ("FLUSHALL",),
        ("CONFIG", "GET", "*"),
        ("KEYS", "*"),
        ("SET", "anything", "else"),
        ("ACL", "LIST"),
    ):
        with pytest.raises(redis.exceptions.NoPermissionError):
            executor.execute_command(*command)
    with pytest.raises(redis.exceptions.RedisError):
        redis.Redis(port=services.broker_port).ping()
    control = broker(services, "control", services.secret("broker-password"))
    with pytest.raises(redis.exceptions.NoPermissionError):
        control.acl_list()


def test_the_broker_keeps_its_log_and_evicts_nothing(services):
    inspector = broker(services, "inspector", "any")
    assert inspector.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    assert inspector.info("persistence")["aof_enabled"] == 1


@pytest.fixture(scope="module")
def training(services: LocalServices) -> Iterator[Training]:
    """On all eight GPUs of both hosts, for as long as it is let."""
    with admin(services) as api:
        register_recorder(services, api)
        options = {"step-seconds": 0.02, "checkpoint-every": 1}
        training = Training(api, services.pool, "long", epochs=100_000, **options)
        training.wait_for_size(8)
        yield training


def ranks(services: LocalServices) -> dict[int, tuple[str, str]]:
    """pid -> (job, attempt)"""
    found = {}
    for process in services.processes():
        try:
            mark = process.environ().get("TIDEPOOL_MARK", "").strip().split(".")
        except psutil.Error:
            continue
        if len(mark) > 4 and mark[4] == "rank":
            found[process.pid] = (mark[2], mark[3])
    return found


def wait_for_steps(training: Training, count: int) -> None:
    goal = training.steps + count
    wait_until(lambda: training.steps >= goal, f"{count} more steps")


@pytest.mark.long
def test_an_upgrade_of_the_control_plane_disturbs_no_training(services, training):
    before = ranks(services)
    assert len(before) == 8
    for line in commands("upgrade.md", "The control plane").splitlines():
        if not line.startswith(("git ", "docker compose build")):
            services.carry_out(line)
        if "stop" in line:
            wait_for_steps(training, 20)
    wait_until(lambda: set(hosts(services).values()) == {"ONLINE"}, "both hosts are online")
    wait_for_steps(training, 20)
    assert ranks(services) == before
    assert (training.now["state"], training.now["attempt"]) == ("RUNNING", 1)


@pytest.mark.long
def test_a_backup_that_is_older_than_the_hosts_does_no_harm(services, training, tmp_path):
    backup = {"BACKUP": str(tmp_path / "backup")}
    services.carry_out(commands("backup-and-restore.md", "Back up with PostgreSQL"), **backup)

    # Changes after the backup: another attempt of the training, and another job.
    training.api.post(f"jobs/{training.id}/suspend/").raise_for_status()
    wait_until(lambda: training.now["state"] == "SUSPENDED", "it is held back")
    later = Training(training.api, services.pool, "later", max_slots=4, epochs=100_000, **{"step-seconds": 0.02})
    training.api.post(f"jobs/{training.id}/resume/").raise_for_status()
    wait_until(
        lambda: set(ranks(services).values()) == {(str(training.id), "2"), (str(later.id), "1")}, "both train", 90
    )
    wait_for_steps(training, 50)
    saved = max(int(path.name.split("-")[1]) for path in training.folder.glob("attempt-*/checkpoint/step-*"))

    said = services.carry_out(commands("backup-and-restore.md", "Restore with PostgreSQL"), **backup)
    assert "1 trainings that ran wait again; 1 had newer records in their folders than the backup." in said
    training.wait_for_size(8)
    assert training.now["attempt"] == 3
    assert set(ranks(services).values()) == {(str(training.id), "3")}
    assert set(hosts(services).values()) == {"ONLINE"}
    events = training.api.get(f"jobs/{training.id}/events/").json()["results"]
    restores = [event for event in events if event["reason"]["code"] == "RESTORED"]
    begun = max(restores, key=lambda event: event["seq"])["reason"]["params"]["step"]
    assert begun >= saved, "it continues from what was saved after the backup"
    assert training.api.get(f"jobs/{later.id}/").status_code == 404
    assert later.folder.is_dir()
    after = Training(training.api, services.pool, "after", epochs=100_000)
    assert after.id > later.id
    for job in (training, after):
        training.api.post(f"jobs/{job.id}/cancel/").raise_for_status()
    wait_until(lambda: {job.now["state"] for job in (training, after)} == {"CANCELLED"}, "both have ended")
    assert not ranks(services)


def kept_jobs(services: LocalServices) -> list[str]:
    """`host: job` of each desired job that an executor still carries out. One that ends leaves them to the next one."""
    files = (services.pool / "run").glob("*/desired.json")
    return [f"{file.parent.name}: {desired['job']}" for file in files for desired in load_json(file)["desired_jobs"]]


def test_everything_stops_when_told_and_leaves_nothing(services):
    wait_until(lambda: not kept_jobs(services), lambda: f"nothing is kept on a host: {kept_jobs(services)}")
    codes = services.stop_all()
    assert codes == dict.fromkeys(codes, 0)
    try:
        wait_until(lambda: not services.processes(), "no process is left")
    except AssertionError:
        pytest.fail("\n".join(" ".join(process.cmdline()) for process in services.processes()))
