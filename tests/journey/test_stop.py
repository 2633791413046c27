"""However `up` ends, nothing of it is left, and the next start continues what was interrupted."""

import json
import signal
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.journey.running_stack import RunningStack, free_port, manage
from tests.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.journey

#: A script that knows nothing of Tidepool.
PLAIN = """
import os, pathlib, signal, sys, time

def save(number, frame):
    if sys.argv[2] == "save":
        pathlib.Path(os.environ["CHECKPOINT_DIR"], "saved").touch()
        sys.exit(0)

signal.signal(signal.SIGTERM, save)
print("begun")
while True:
    time.sleep(0.05)
"""


@contextmanager
def short_home() -> Iterator[Path]:
    """A folder with a short name, as people have: unix sockets lie below it."""
    with tempfile.TemporaryDirectory(prefix="tidepool-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextmanager
def running(home: Path, *arguments: str) -> Iterator[RunningStack]:
    stack = RunningStack(home, free_port(), arguments)
    stack.start()
    yield stack
    stack.stop()


@pytest.fixture(scope="module")
def first() -> Iterator[RunningStack]:
    with short_home() as home, running(home, "--broker", "system", "--hosts", "2", "--slots-per-host", "1") as stack:
        yield stack


@pytest.fixture(scope="module")
def interrupted(first: RunningStack, training: int) -> RunningStack:
    """The first life of the stack, once it has been ended as it trained."""
    wait_until_it_trains_on_two(first, training, attempt=1)
    assert_leaves_nothing(first, signal.SIGINT)
    return first


@pytest.fixture(scope="module")
def second(interrupted: RunningStack) -> Iterator[RunningStack]:
    with running(interrupted.home, "--hosts", "1", "--slots-per-host", "2") as stack:
        yield stack


@pytest.fixture(scope="module")
def killed(second: RunningStack, training: int) -> RunningStack:
    wait_until_it_trains_on_two(second, training, attempt=2)
    assert_leaves_nothing(second, signal.SIGKILL)
    return second


@pytest.fixture(scope="module")
def third(killed: RunningStack) -> Iterator[RunningStack]:
    with running(killed.home, "--hosts", "1", "--slots-per-host", "2") as stack:
        yield stack


@pytest.fixture(scope="module")
def training(first: RunningStack) -> int:
    """Goes on through all lives of the stack."""
    with first.api() as api:
        return submit(api)


def submit(api: httpx.Client, **changes: Any) -> int:
    body = {
        "name": "a training",
        "model": "digits-cnn",
        "dataset": "digits",
        "instance_group": "sig-elastic",
        "min_slots": 1,
        "max_slots": 2,
        "parameters": {"epochs": 5000},
    }
    answer = api.post("jobs/", json=body | changes)
    assert answer.status_code == 201, answer.text
    return int(answer.json()["id"])


def job(api: httpx.Client, number: int) -> dict[str, Any]:
    return dict(api.get(f"jobs/{number}/").raise_for_status().json())


def test_the_password_is_said(first: RunningStack) -> None:
    first.wait_for_line(f"  Log in as admin, password {first.password}", 5)


def test_a_second_up_on_the_same_home_is_refused(first: RunningStack) -> None:
    refused = manage(first.home, "up", "--port", str(free_port()))
    assert refused.returncode == 1
    assert f"already runs on {first.home}: process {first.process.pid} at {first.url}" in refused.stderr
    assert first.process.poll() is None
    with first.api() as api:
        assert api.get("me/").status_code == 200


def test_a_child_that_dies_is_started_again(first: RunningStack) -> None:
    [scheduler] = [process for process in first.family() if "tidepool scheduler" in process.cmdline()]
    scheduler.kill()
    first.wait_for_line("scheduler was ended by SIGKILL; it starts again in 0.5 s", 10)
    with first.api() as api:
        number = submit(api, max_slots=1, parameters={"epochs": 1})
        wait_until(lambda: job(api, number)["state"] == "SUCCEEDED", "the new scheduler starts a job")


def test_the_brokers_password_stands_in_private_files_alone(first: RunningStack, training: int) -> None:
    """Not where all users of the machine, or a training, come upon it: see docs/security.md."""
    password = (first.home / "run/broker-url").read_text().partition("://:")[2].partition("@")[0].encode()
    assert len(password) >= 32
    wait_until_it_trains_on_two(first, training, attempt=1)
    for process in first.family():
        with suppress(FileNotFoundError, ProcessLookupError):
            said = [Path(f"/proc/{process.pid}/{name}").read_bytes() for name in ("cmdline", "environ")]
            assert password not in b"".join(said), process
    holders = []
    for path in first.home.rglob("*"):
        with suppress(FileNotFoundError):  # an executor's next journal takes the place of the last
            if path.is_file() and "results" not in path.parts and password in path.read_bytes():
                holders.append(path)
    assert sorted(path.name for path in holders) == ["broker-url", "server.conf"]
    private = [*holders, first.home / "tidepool.sqlite3", first.home / "tidepool.sqlite3-wal"]
    assert {path.stat().st_mode & 0o777 for path in private} == {0o600}
    assert first.home.stat().st_mode & 0o777 == 0o700


def test_leaves_nothing_when_it_is_interrupted(interrupted: RunningStack) -> None:
    assert "Tidepool has stopped." in interrupted.said


def test_a_second_start_continues_and_drops_hosts_that_are_gone(second: RunningStack, training: int) -> None:
    assert "  gpu-host-2 is not among the hosts of this start: drained and removed." in second.said
    assert second.password not in "".join(second.said), "the password is said once"
    reasons = wait_until_it_trains_on_two(second, training, attempt=2)
    assert {"STACK_STOPPED", "HALTED"} <= set(reasons)
    before_it, after_it = (steps(second.home, training, attempt) for attempt in (1, 2))
    assert (before_it[0], after_it[0]) == (1, before_it[-1] + 1), "no step is lost or made twice"
    with second.api() as api:
        hosts = {host["name"]: host["state"] for host in api.get("hosts/").json()["results"]}
    assert hosts["gpu-host-1"] == "ONLINE"
    assert hosts.get("gpu-host-2", "OFFLINE") == "OFFLINE"


def test_leaves_nothing_when_it_is_killed(killed: RunningStack) -> None:
    assert killed.process.poll() == -signal.SIGKILL


# A third life of the stack: tests/workers/executor and test_outages.py end hosts in each way, too.
@pytest.mark.long
def test_a_start_after_a_kill_continues(second: RunningStack, third: RunningStack, training: int) -> None:
    reasons = wait_until_it_trains_on_two(third, training, attempt=3)
    assert reasons.count("STACK_STOPPED") == 3, "two of a stop in order, one of a kill"
    assert any("1 training was interrupted" in line for line in [*second.said, *third.said])
    with third.api() as api:
        api.post(f"jobs/{training}/cancel/").raise_for_status()


@pytest.mark.long
def test_a_plain_script_may_save_when_the_stack_stops_and_a_second_signal_ends_one_that_does_not(
    third: RunningStack, training: int
) -> None:
    code = third.home / "models" / "plain"
    code.mkdir()
    (code / "train.py").write_text(PLAIN)
    with third.api() as api:
        wait_until(lambda: job(api, training)["state"] == "CANCELLED", "the GPUs are free")
        model = {"name": "plain", "framework": "PyTorch", "path": str(code), "entry_point": "train.py"}
        assert api.post("models/", json={**model, "engine": "single"}).status_code == 201
        jobs = [submit(api, model="plain", max_slots=1, parameters={"at-sigterm": what}) for what in ("save", "ignore")]
        for number in jobs:
            wait_until(lambda number=number: "begun" in log(api, number), f"{number} has begun")
    third.signal(signal.SIGTERM)
    third.wait_for_line("  2 trainings may take", 20)
    [saved] = third.home.glob(f"results/*/batchworkdir/{jobs[0]}/attempt-1/checkpoint")
    wait_until((saved / "saved").exists, "the first one has saved")
    assert_leaves_nothing(third, signal.SIGTERM)


@pytest.mark.long
def test_leaves_nothing_with_the_broker_of_the_wheel() -> None:
    with short_home() as home, running(home, "--broker", "wheel", "--hosts", "1", "--slots-per-host", "2") as stack:
        with stack.api() as api:
            wait_until_it_trains_on_two(stack, submit(api), attempt=1)
        assert_leaves_nothing(stack, signal.SIGTERM)


def wait_until_it_trains_on_two(stack: RunningStack, training: int, attempt: int) -> list[str]:
    """Return the codes of its events."""
    with stack.api() as api:
        wait_until(lambda: (job(api, training)["attempt"], job(api, training)["slots"]) == (attempt, 2), "two GPUs")
        wait_until(lambda: steps(stack.home, training, attempt), "it trains")
        parts = "up, broker, web, scheduler, control, executor, forkserver, shim, coordinator, two ranks"
        assert len(stack.family()) >= 11, parts
        return [event["reason"]["code"] for event in api.get(f"jobs/{training}/events/").json()["results"]]


def assert_leaves_nothing(stack: RunningStack, number: signal.Signals) -> None:
    family = stack.family()
    stack.signal(number)
    assert stack.process.wait(PATIENCE_SECONDS) == (-number if number is signal.SIGKILL else 0), stack.everything_said()
    wait_until(lambda: not [process for process in family if is_alive(process)], "every process has ended")
    stack.assert_nothing_is_left()
    assert stack.sockets() == []


def steps(home: Path, number: int, attempt: int) -> list[int]:
    files = home.glob(f"results/*/batchworkdir/{number}/attempt-{attempt}/metrics.jsonl")
    return [json.loads(line)["step"] for file in files for line in file.read_text().split("\n")[:-1]]


def log(api: httpx.Client, number: int) -> str:
    return str(api.get(f"jobs/{number}/logs/", params={"rank": 0}).json().get("text", ""))


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.long
def test_trains_and_stops_as_ordinary_user() -> None:
    """Run by scripts/test-as-user under an account that is not root."""
    with short_home() as home, running(home, "--hosts", "2", "--slots-per-host", "2") as stack:
        with stack.api() as api:
            training = submit(api, max_slots=4, parameters={"epochs": 10})
            waiting = ("PENDING", "STARTING", "RUNNING")
            wait_until(lambda: job(api, training)["state"] not in waiting, "it ends")
            assert job(api, training)["state"] == "SUCCEEDED", job(api, training)
            assert api.get(f"jobs/{training}/result/").content.startswith(b"PK")
        stack.stop()
        stack.assert_nothing_is_left()


def test_a_port_in_use_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        refused = manage(tmp_path, "up", "--port", str(holder.getsockname()[1]))
    assert refused.returncode == 1
    assert "is in use: stop the program that holds it, or choose another one with --port" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert RunningStack(tmp_path, 1).strays() == []


def test_a_home_that_cannot_be_written_is_refused() -> None:
    refused = manage(Path("/proc/tidepool"), "up")
    assert refused.returncode == 1
    assert "set TIDEPOOL_HOME to a folder" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_the_tutorial_says_where_nobody_answers(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    nowhere = manage(tmp_path, "tutorial", "--url", url)
    assert "start `manage.py up` first" in nowhere.stderr
    manage(tmp_path, "migrate")
    silent = manage(tmp_path, "tutorial", "--url", url)
    assert f"{url}/api/v1/ does not answer" in silent.stderr
    for refused in (nowhere, silent):
        assert refused.returncode == 1
        assert "Traceback" not in refused.stderr
