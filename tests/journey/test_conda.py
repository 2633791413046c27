"""A training whose environment.yml names a package that only conda has: its host solves it, from a channel of ours."""

import os
from pathlib import Path

import pytest

from tests.journey.conftest import fresh_home
from tests.journey.running_stack import RunningStack, free_port
from tests.missing import leave_out
from tests.waiting import wait_until
from tests.workers.executor.environments.conda_channel import Channel
from workers.executor.environments.conda import SOLVERS, solver_in

pytestmark = [pytest.mark.journey, pytest.mark.long, pytest.mark.timeout(600)]

FILE = "channels: [ours, nodefaults]\ndependencies: [tidehello, {pip: [colorama]}]\n"
SCRIPT = "import sys, colorama, tidehello\nprint('ran with', tidehello.VERSION, sys.prefix)\n"


def test_conda_makes_the_environment_of_a_training(tmp_path: Path) -> None:
    solver = solver_in()
    if not solver:
        leave_out(f"this machine has none of {', '.join(SOLVERS)}")
    channel = Channel(tmp_path / "ours")
    channel.add_python()
    channel.add_module("pip", "25.0", "python")
    channel.add_module("tidehello", "1.2", "python >=3.11")
    settings = {"CONDA_CHANNEL_ALIAS": f"file://{tmp_path}", "PATH": os.environ["PATH"]}
    with fresh_home() as home:
        stack = RunningStack(home, free_port(), settings=settings)
        stack.start()
        try:
            trained(stack, solver)
        finally:
            stack.stop()


def trained(stack: RunningStack, solver: str) -> None:
    folder = stack.home / "models" / "solved"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    (folder / "environment.yml").write_text(FILE)
    with stack.api() as api:
        assert {host["conda"] for host in api.get("hosts/").json()["results"]} == {solver}
        model = {"name": "solved", "path": "solved", "entry_point": "train.py", "engine": "single"}
        assert api.post("models/", json={**model, "framework": "PyTorch"}).status_code == 201
        asked = {"name": "solved", "model": "solved", "instance_group": "sig-elastic", "max_slots": 1}
        answer = api.post("jobs/", json=asked)
        assert answer.status_code == 201, answer.text
        assert "--conda tidehello" in answer.json()["requirements"]
        address = f"jobs/{answer.json()['id']}/"
        wait_until(lambda: bool(api.get(address).json()["finished_at"]), "it ends", seconds=300)
        end = api.get(address).json()
        assert end["state"] == "SUCCEEDED", end["reason"]
        used = api.get(f"{address}provenance/").json()["packages"]
    assert used["tidehello"] == "1.2"
    assert "colorama" in used
    printed = "".join(path.read_text() for path in stack.home.glob("results/*/batchworkdir/*/**/stdout"))
    assert "ran with 1.2 " in printed
    assert "/.environments/" in printed.partition("ran with ")[2].splitlines()[0]
