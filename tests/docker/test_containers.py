"""docker-compose.yml in containers: it is built, trains, and survives kills of its main processes.

Needs docker or podman with the base images; CONTRIBUTING.md says how to have them.
"""

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.docker.containers import Containers, engine_or_leave_out
from tests.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(5400)]

SERVICES = ("postgres", "valkey", "web", "scheduler", "control", "background", "executor-virtual")
#: Services that are killed: those whose end nobody may notice for long.
KILLED = ("web", "scheduler", "control", "background", "valkey")


@pytest.fixture(scope="module")
def site() -> Iterator[Containers]:
    engine = engine_or_leave_out()
    with tempfile.TemporaryDirectory(prefix="tide-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        site = Containers(engine, Path(folder))
        site.prepare()
        site.build()
        try:
            site.start()
            site.wait_until_healthy(*SERVICES)
            yield site
        finally:
            site.end()


@pytest.fixture
def api(site: Containers) -> Iterator[httpx.Client]:
    with site.api() as api:
        yield api


def train(api: httpx.Client, name: str) -> int:
    group = api.get("instance-groups/").json()["results"][0]["name"]
    given = {"name": name, "model": "digits-cnn", "dataset": "digits", "instance_group": group}
    answer = api.post("jobs/", json={**given, "min_slots": 4, "max_slots": 4, "parameters": {"epochs": 1}})
    assert answer.status_code == 201, answer.text
    return int(answer.json()["id"])


def row(api: httpx.Client, job: int) -> dict[str, Any]:
    return dict(api.get(f"jobs/{job}/").raise_for_status().json())


def wait_until_succeeded(api: httpx.Client, job: int) -> dict[str, Any]:
    wait_until(lambda: row(api, job)["state"] in ("SUCCEEDED", "FAILED"), lambda: f"{row(api, job)}", 600)
    found = row(api, job)
    assert found["state"] == "SUCCEEDED", found
    return found


def test_a_training_takes_all_virtual_gpus_and_succeeds(api: httpx.Client) -> None:
    job = train(api, "first")
    wait_until_succeeded(api, job)
    sizes = [point["slots"] for point in api.get(f"jobs/{job}/allocation/").json()]
    assert max(sizes) == 4


def test_no_container_runs_as_root_has_a_capability_or_may_write_its_code(site: Containers) -> None:
    for service, container in site.running().items():
        status = dict(
            line.split(":", 1) for line in site.execute(container, "cat", "/proc/self/status").stdout.splitlines()
        )
        assert {status[name].strip() for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
        assert status["NoNewPrivs"].strip() == "1", service
        assert "0" not in status["Uid"].split(), service
        if service not in ("postgres", "valkey"):
            written = site.execute(container, "sh", "-c", "echo x > /opt/tidepool/webapp/settings.py")
            assert written.returncode != 0, service


def test_no_secret_is_in_the_environment_of_a_container(site: Containers) -> None:
    secrets = [site.secret(name) for name in ("admin-password", "database-password", "broker-password")]
    for service, container in site.running().items():
        told = str(site.inspect(container)["Config"])
        assert [secret for secret in secrets if secret in told] == [], service


def test_main_processes_that_are_killed_come_back(site: Containers, api: httpx.Client) -> None:
    before = {service: site.inspect(site.running()[service])["State"]["Pid"] for service in KILLED}
    for pid in before.values():
        os.kill(pid, signal.SIGKILL)

    def replaced() -> bool:
        running = site.running()
        return all(
            service in running and site.inspect(running[service])["State"]["Pid"] not in (0, pid)
            for service, pid in before.items()
        )

    wait_until(replaced, "all five are back")
    site.wait_until_healthy(*SERVICES)
    wait_until_succeeded(api, train(api, "after the kills"))
