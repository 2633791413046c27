"""Test of `make test-gpu` and `manage.py doctor --gpu`, with CPU processes in place of GPUs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu_acceptance import changes, is_whole, shape_for, why
from tests.test_architecture import ROOT


@pytest.mark.parametrize(
    ("gpus", "device", "sizes", "shares"),
    [
        (0, "cpu", [1, 4, 2, 4, 1], False),
        (1, "cuda", [1, 2, 1, 2, 1], True),
        (2, "cuda", [1, 2, 1, 2, 1], False),
        (8, "cuda", [1, 8, 4, 8, 1], False),
    ],
)
def test_it_adapts_to_the_gpus(gpus: int, device: str, sizes: list[int], shares: bool) -> None:
    shape = shape_for(gpus)
    assert (shape.device, shape.sizes, shape.shares) == (device, sizes, shares)


def test_the_gap_of_a_change_and_lost_steps_are_seen() -> None:
    steps = [
        {"step": number, "at": at, "world_size": size}
        for number, at, size in [(1, 0.0, 1), (2, 0.1, 1), (3, 0.6, 2), (4, 0.7, 2), (5, 0.8, 2)]
    ]
    [change] = changes(steps)
    assert (change["from"], change["to"], round(change["gap_ms"]), round(change["step_ms"])) == (1, 2, 500, 100)
    assert is_whole(steps)
    assert not is_whole(steps[1:])


def test_a_process_that_does_not_end_hides_no_reason() -> None:
    try:
        try:
            raise AssertionError("not within 180 s: step 5")
        finally:
            raise subprocess.TimeoutExpired("forkserver", 20)
    except subprocess.TimeoutExpired as error:
        first, second = why(error).splitlines()
    assert first == "AssertionError: not within 180 s: step 5"
    assert second.startswith("TimeoutExpired: ")


@pytest.mark.long
def test_doctor_runs_it_and_it_writes_its_page(tmp_path: Path) -> None:
    command = [sys.executable, "manage.py", "doctor", "--gpu", "--minutes=1", "--folder", str(tmp_path)]
    virtual = {**os.environ, "TIDEPOOL_VIRTUAL_SLOTS": "4"}
    done = subprocess.run(command, cwd=ROOT, env=virtual, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    checks = json.loads((tmp_path / "gpu.json").read_text())["checks"]
    passed = {check["name"]: check["passed"] for check in checks}
    assert passed["bitwise"] is True
    assert passed["host waits"] is True
    assert passed["step against DDP"] is True
    assert "says nothing of GPUs" in (tmp_path / "gpu.html").read_text()
