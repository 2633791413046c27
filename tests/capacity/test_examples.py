"""The commands in examples/autoscaling, run against stand-ins for the programs of clouds and of Slurm."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from capacity.fleets import read_fleets
from capacity.hooks import answer_of

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "autoscaling"
#: Writes down its arguments and the variables that matter, and answers with the body.
PROGRAM = """#!{python}
import json, os, sys
with open({calls!r}, "a") as calls:
    calls.write(json.dumps([sys.argv[1:], os.environ.get("TIDEPOOL_FLEET"), os.environ.get("TOKEN")]) + "\\n")
{body}
"""
START = {
    "action": "start", "fleet": "spot", "change": 7, "count": 2, "hosts": [], "total": 5, "site": "https://gpus",
    "join_token": "join_x",
}  # fmt: skip
STOP = {**START, "action": "stop", "count": 1, "hosts": ["i-1"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    return tmp_path


def stand_in(folder: Path, name: str, body: str = "") -> None:
    file = folder / "bin" / name
    file.write_text(PROGRAM.format(python=sys.executable, calls=str(folder / "calls"), body=body))
    file.chmod(0o755)


def call(folder: Path, example: str, request: dict[str, Any], *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    command = [sys.executable, str(EXAMPLES / example), *arguments]
    return subprocess.run(command, input=json.dumps(request), capture_output=True, text=True, env=environment)


def calls(folder: Path) -> list[list[Any]]:
    return [json.loads(line) for line in (folder / "calls").read_text().splitlines()]


GROUP = "print(json.dumps({'AutoScalingGroups': [{'DesiredCapacity': %d, 'MaxSize': %d}]}))"


@pytest.mark.parametrize(
    ("desired", "most", "count", "asked"), [(3, 10, 2, "5"), (3, 4, 1, "4"), (5, 10, 0, None), (4, 4, 0, None)]
)
def test_an_auto_scaling_group_grows(folder: Path, desired: int, most: int, count: int, asked: str | None) -> None:
    stand_in(folder, "aws", GROUP % (desired, most))
    done = call(folder, "aws_auto_scaling_group.py", START, "gpus")
    assert answer_of("aws", done.stdout).count == count
    set_to = [arguments[arguments.index("--desired-capacity") + 1] for arguments, _, _ in calls(folder)[1:]]
    assert set_to == ([asked] if asked else [])


def test_an_auto_scaling_group_loses_the_instance_that_is_named(folder: Path) -> None:
    stand_in(folder, "aws")
    assert answer_of("aws", call(folder, "aws_auto_scaling_group.py", STOP, "gpus").stdout).count == 1
    [[arguments, _, _]] = calls(folder)
    assert arguments[1:] == [
        "terminate-instance-in-auto-scaling-group", "--instance-id", "i-1", "--should-decrement-desired-capacity",
        "--output", "json",
    ]  # fmt: skip


def test_skypilot_launches_a_cluster_for_each_host(folder: Path) -> None:
    stand_in(folder, "sky")
    assert answer_of("sky", call(folder, "skypilot.py", START, "task.yaml").stdout).count == 2
    launched = [arguments for arguments, _, _ in calls(folder)]
    assert [arguments[:4] for arguments in launched] == [
        ["launch", "task.yaml", "--cluster", "spot-7-1"], ["launch", "task.yaml", "--cluster", "spot-7-2"],
    ]  # fmt: skip
    assert {"HOST=spot-7-1", "TIDEPOOL_FLEET=spot", "TOKEN=join_x"} <= set(launched[0])
    call(folder, "skypilot.py", STOP, "task.yaml")
    assert calls(folder)[-1][0] == ["down", "i-1", "--yes"]


def test_slurm_gets_a_pilot_for_each_host(folder: Path) -> None:
    stand_in(folder, "sbatch", "print('4711;cluster')")
    stand_in(folder, "scancel")
    done = call(folder, "slurm.py", START, "--partition=gpu", "pilot.sh")
    assert answer_of("sbatch", done.stdout).message == "Submitted 4711, 4711."
    assert calls(folder)[0] == [["--parsable", "--export=ALL", "--partition=gpu", "pilot.sh"], "spot", "join_x"]
    call(folder, "slurm.py", {**STOP, "hosts": ["slurm-4711"]}, "--partition=gpu", "pilot.sh")
    assert calls(folder)[-1][0] == ["4711"]


@pytest.mark.parametrize(
    ("example", "program", "argument"),
    [("aws_auto_scaling_group.py", "aws", "gpus"), ("skypilot.py", "sky", "t.yaml"), ("slurm.py", "sbatch", "p.sh")],
)
def test_an_error_of_the_program_is_the_last_line(folder: Path, example: str, program: str, argument: str) -> None:
    stand_in(folder, program, "sys.exit('no capacity in this zone')")
    done = call(folder, example, START, argument)
    assert (done.returncode, done.stderr.strip()) == (1, "no capacity in this zone")


def test_the_file_of_the_examples_can_be_read() -> None:
    assert [fleet.name for fleet in read_fleets(EXAMPLES / "fleets.toml")] == ["spot", "on-demand", "slurm", "sky"]
