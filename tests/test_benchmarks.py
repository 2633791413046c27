"""Benchmarks of the site run, here over little: what they ask for must not have gone since they were last measured."""

import subprocess
import sys

import pytest

from tests.test_architecture import ROOT

pytestmark = pytest.mark.long


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
