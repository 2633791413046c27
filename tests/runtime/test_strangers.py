"""Who may speak to a training: its own processes, by a secret that is in no file, variable or command line."""

import json
from collections.abc import Callable
from pathlib import Path

import psutil
from tidepool import procfs

from tests.runtime.lab import Lab
from tests.runtime.strangers import forge
from tests.waiting import wait_until

SECRET = "5ec2e7" * 11
ARGUMENTS = ["--epochs", "1000", "--step-seconds", "0.02"]


def training(make_lab: Callable[..., Lab], size: int = 2, **options: object) -> Lab:
    lab = make_lab("mlp.py", arguments=ARGUMENTS, **options)
    lab.size(size)
    lab.wait_for_size(size)
    lab.wait_for_steps(3)
    return lab


def place(lab: Lab) -> tuple[str, int]:
    found = json.loads((lab.folder / "coordinator.json").read_text())
    return found["address"], found["port"]


def test_a_coordinator_takes_nothing_from_strangers(make_lab: Callable[..., Lab]) -> None:
    lab = training(make_lab)
    members, (address, port) = lab.member_ids(), place(lab)
    found = forge(address, [port])
    assert "answered" not in {what[port] for what in found.values()}, found
    lab.wait_for_steps(3)
    assert lab.member_ids() == members
    assert psutil.Process(lab.coordinator["pid"]).is_running()
    assert "refused a caller from 127.0.0.1" in (lab.folder / "log" / "coordinator.err").read_text()


def test_the_next_coordinator_takes_the_ranks_over(make_lab: Callable[..., Lab]) -> None:
    lab = training(make_lab)
    members = lab.member_ids()
    lab.start_coordinator("another")
    lab.size(1)
    lab.wait_for_size(1)
    assert set(lab.member_ids()) < set(members)
    assert not psutil.pid_exists(lab.coordinator["pid"]) or lab.journal("lead_taken")[-1]["host"] == "a"


def test_the_secret_is_in_no_file_variable_or_command_line(make_lab: Callable[..., Lab]) -> None:
    lab = training(make_lab, secret=SECRET)
    files = [path for path in lab.folder.rglob("*") if path.is_file()]
    assert {"launch.a.json", "coordinator.json", "plans.jsonl", "stderr"} <= {path.name for path in files}
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]
    processes = procfs.marked(lab.mark)
    assert len(processes) >= 4, "shim, coordinator, two ranks"
    for process in processes:
        for name in ("environ", "cmdline"):
            assert SECRET.encode() not in Path(f"/proc/{process.pid}/{name}").read_bytes()


def test_an_attempt_of_an_earlier_release_goes_on_without_a_secret(make_lab: Callable[..., Lab]) -> None:
    lab = training(make_lab, size=1, secret="")
    assert json.loads((lab.folder / "coordinator.json").read_text())["handshake"] is False
    lab.size(2)
    lab.wait_for_size(2)
    lab.start_coordinator("another")
    lab.size(1)
    lab.wait_for_size(1)


def test_a_process_that_the_script_starts_learns_why_it_cannot_train(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab("session_in_a_child.py", sizes={"a": 1})
    lab.size(1, wait=lambda _: None)
    wait_until(lambda: lab.exits(), lab.story)
    [log] = lab.folder.glob("log/*/stderr")
    assert "does not know its training's secret" in log.read_text()


def test_a_command_in_a_rank_s_place_knows_the_secret(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab("session_in_a_command.py", sizes={"a": 1})
    lab.size(1, wait=lambda _: None)
    lab.wait_for_size(1)
    lab.wait_for_the_end()
    assert not any(end["code"] for end in lab.exits().values())
