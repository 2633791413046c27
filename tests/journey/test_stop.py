"""However `up` ends, nothing of it is left, and the next start continues what was interrupted."""

import json
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.journey.running_stack import RunningStack, free_port, manage
from tests.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.journey

Starter = Callable[..., RunningStack]

#: A script that knows nothing of Tidepool.
PLAIN = """
import os, pathlib, signal, sys

def save(number, frame):
    if sys.argv[2] == "save":
        pathlib.Path(os.environ["CHECKPOINT_DIR"], "saved").touch()
        sys.exit(0)

signal.signal(signal.SIGTERM, save)
print("begun")
while True:
    signal.pause()
"""


@pytest.fixture
def home() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="tidepool-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def start(home: Path) -> Iterator[Starter]:
    """Starts stacks in the same home, one after the other."""
    started: list[RunningStack] = []

    def starter(*arguments: str) -> RunningStack:
        running = RunningStack(home, free_port(), arguments)
        started.append(running)
        running.start()
        return running

    yield starter
    for running in started:
        running.stop()


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


@pytest.mark.parametrize(
    ("number", "broker"),
    [
        pytest.param(signal.SIGTERM, "wheel", marks=pytest.mark.long),
        (signal.SIGINT, "system"),
        (signal.SIGKILL, "auto"),
    ],
    ids=["terminated", "interrupted", "killed"],
)
def test_leaves_nothing_and_continues_at_the_next_start(start: Starter, number: signal.Signals, broker: str) -> None:
    first = start("--broker", broker, "--hosts", "1", "--slots-per-host", "2")
    with first.api() as api:
        training = submit(api)
        wait_until(lambda: job(api, training)["step"] > 0 and job(api, training)["slots"] == 2, "it trains on two")
    before = first.family()
    assert len(before) >= 11, "up, broker, web, scheduler, control, executor, forkserver, shim, coordinator, two ranks"
    first.signal(number)
    assert first.process.wait(PATIENCE_SECONDS) == (-number if number is signal.SIGKILL else 0), first.everything_said()
    wait_until(lambda: not [process for process in before if is_alive(process)], "every process has ended")
    first.assert_nothing_is_left()
    assert first.sockets() == []
    if number is not signal.SIGKILL:
        assert "Tidepool has stopped." in first.said

    second = start("--hosts", "1", "--slots-per-host", "2")
    with second.api() as api:
        wait_until(lambda: job(api, training)["attempt"] == 2, "it starts again")
        wait_until(lambda: steps(second.home, training, 2), "it trains again")
        reasons = [event["reason"]["code"] for event in api.get(f"jobs/{training}/events/").json()["results"]]
    assert "STACK_STOPPED" in reasons
    if number is signal.SIGKILL:
        assert any("1 job was interrupted" in line for line in [*first.said, *second.said])
    else:
        assert "HALTED" in reasons
        before_it, after_it = (steps(second.home, training, attempt) for attempt in (1, 2))
        assert (before_it[0], after_it[0]) == (1, before_it[-1] + 1), "no step is lost or made twice"


def steps(home: Path, number: int, attempt: int) -> list[int]:
    files = home.glob(f"results/*/batchworkdir/{number}/attempt-{attempt}/metrics.jsonl")
    return [json.loads(line)["step"] for file in files for line in file.read_text().split("\n")[:-1]]


def test_a_plain_script_may_save_when_the_stack_stops_and_a_second_signal_ends_one_that_does_not(
    start: Starter, home: Path
) -> None:
    stack = start("--hosts", "1", "--slots-per-host", "2")
    code = home / "models" / "plain"
    code.mkdir()
    (code / "train.py").write_text(PLAIN)
    with stack.api() as api:
        model = {"name": "plain", "framework": "PyTorch", "path": str(code), "entry_point": "train.py"}
        assert api.post("models/", json={**model, "engine": "single"}).status_code == 201
        jobs = [submit(api, model="plain", max_slots=1, parameters={"at-sigterm": what}) for what in ("save", "ignore")]
        for number in jobs:
            wait_until(lambda number=number: "begun" in log(api, number), f"{number} has begun")
    stack.signal(signal.SIGTERM)
    stack.wait_for_line("  2 trainings may take", 20)
    [saved] = home.glob(f"results/*/batchworkdir/{jobs[0]}/attempt-1/checkpoint")
    wait_until((saved / "saved").exists, "the first one has saved")
    stack.signal(signal.SIGTERM)
    assert stack.process.wait(PATIENCE_SECONDS) == 0, stack.everything_said()
    stack.assert_nothing_is_left()


def log(api: httpx.Client, number: int) -> str:
    return str(api.get(f"jobs/{number}/logs/", params={"rank": 0}).json().get("text", ""))


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.long
def test_trains_and_stops_as_ordinary_user(start: Starter) -> None:
    """Run by scripts/test-as-user under an account that is not root."""
    stack = start("--hosts", "2", "--slots-per-host", "2")
    with stack.api() as api:
        training = submit(api, max_slots=4, parameters={"epochs": 10})
        wait_until(lambda: job(api, training)["state"] not in ("PENDING", "STARTING", "RUNNING"), "it ends")
        assert job(api, training)["state"] == "SUCCEEDED", job(api, training)
        assert api.get(f"jobs/{training}/result/").content.startswith(b"PK")
    stack.stop()
    stack.assert_nothing_is_left()


def test_a_child_that_dies_is_started_again(start: Starter) -> None:
    stack = start("--hosts", "1", "--slots-per-host", "1")
    [scheduler] = [process for process in stack.family() if "run_scheduler" in process.cmdline()]
    scheduler.kill()
    stack.wait_for_line("scheduler was ended by SIGKILL; it starts again in 0.5 s", 10)
    with stack.api() as api:
        training = submit(api, max_slots=1, parameters={"epochs": 1})
        wait_until(lambda: job(api, training)["state"] == "SUCCEEDED", "the new scheduler starts a job")


def test_a_second_start_is_quick_and_drops_hosts_that_are_gone(start: Starter) -> None:
    first = start("--hosts", "2", "--slots-per-host", "1")
    first.wait_for_line(f"  Log in as admin, password {first.password}", 5)
    first.stop()
    begun = time.monotonic()
    second = start("--hosts", "1", "--slots-per-host", "1")
    assert time.monotonic() - begun < 30
    assert "  gpu-host-2 is not among the hosts of this start: drained and removed." in second.said
    assert second.password not in "".join(second.said), "the password is said once"
    with second.api() as api:
        hosts = {host["name"]: host["state"] for host in api.get("hosts/").json()["results"]}
    assert hosts["gpu-host-1"] == "ONLINE"
    assert hosts.get("gpu-host-2", "OFFLINE") == "OFFLINE"


def test_a_second_up_on_the_same_home_is_refused(start: Starter) -> None:
    stack = start("--hosts", "1", "--slots-per-host", "1")
    refused = manage(stack.home, "up", "--port", str(free_port()))
    assert refused.returncode == 1
    assert f"already runs on {stack.home}: process {stack.process.pid} at {stack.url}" in refused.stderr
    assert stack.process.poll() is None
    with stack.api() as api:
        assert api.get("me/").status_code == 200


def test_a_port_in_use_is_refused_and_leaves_nothing(home: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        refused = manage(home, "up", "--port", str(holder.getsockname()[1]))
    assert refused.returncode == 1
    assert "is in use: stop the program that holds it, or choose another one with --port" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert RunningStack(home, 1).strays() == []


def test_a_home_that_cannot_be_written_is_refused() -> None:
    refused = manage(Path("/proc/tidepool"), "up")
    assert refused.returncode == 1
    assert "set TIDEPOOL_HOME to a folder" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--port", "0"], "'0' is not a whole number from 1 to 65535"),
        (["--hosts", "none"], "'none' is not a whole number from 1 to 16"),
        (["--slots-per-host", "-1"], "is not a whole number from 1 to 16"),
        (["--broker", "rabbitmq"], "invalid choice: 'rabbitmq'"),
        (["--address", "0.0.0.0"], "set TIDEPOOL_ALLOWED_HOSTS"),
        (["--address", "example.org"], "is not an IP address"),
    ],
)
def test_senseless_options_are_refused_with_a_sentence(home: Path, arguments: list[str], sentence: str) -> None:
    refused = manage(home, "up", *arguments)
    assert refused.returncode in (1, 2)
    assert sentence in refused.stderr
    assert "Traceback" not in refused.stderr


def test_the_tutorial_says_where_nobody_answers(home: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    nowhere = manage(home, "tutorial", "--url", url)
    assert "start `manage.py up` first" in nowhere.stderr
    manage(home, "migrate")
    silent = manage(home, "tutorial", "--url", url)
    assert f"{url}/api/v1/ does not answer" in silent.stderr
    for refused in (nowhere, silent):
        assert refused.returncode == 1
        assert "Traceback" not in refused.stderr
