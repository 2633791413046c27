"""Benchmarks of the site run, here over little: what they ask for must not have gone since they were last measured."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.results import dearer, result, show
from tests.test_architecture import ROOT


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "size"),
    [("pages", "--jobs=300"), ("previews", "--jobs=100"), ("job_list", "--jobs=300"), ("waiting", "--trainings=20")],
)
def test_they_run(name: str, size: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", size], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert " ms " in done.stdout, "it has measured something"


def test_what_has_become_dearer_is_named(tmp_path: Path) -> None:
    file = tmp_path / "before.json"
    show([result("a report", "ms", [2.0]), result("another", "ms", [2.0]), result("reports", "1/s", [1.0])], file)
    now = [result("a report", "ms", [2.7]), result("another", "ms", [2.5]), result("reports", "1/s", [9.0])]
    assert dearer([*now, result("a new one", "ms", [9.0])], file, ["ms"]) == ["a report: 2.7 ms, 2 before"]
