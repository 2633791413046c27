"""Test that a step has the host wait for a GPU once at most: for the sums that all ranks read."""

import json
from pathlib import Path

import pytest

from tests.runtime.lab import SCRIPTS
from tests.runtime.off_cluster import run_off_cluster


@pytest.mark.parametrize("way", ["session", "prepared"])
def test_a_step_reads_its_sums_and_nothing_else(tmp_path: Path, way: str) -> None:
    run_off_cluster(SCRIPTS / "host_waits.py", tmp_path / "counts.json", "cpu", way)
    counts = json.loads((tmp_path / "counts.json").read_text())
    settled = counts[3:]
    assert len(settled) >= 5
    assert {count.get("read", 0) for count in settled} <= {0, 1}
    assert {count.get("made", 0) for count in settled} == {0}, "each would be copied from pageable memory"
