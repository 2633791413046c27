"""The same snapshot gives the same plan in every process, whatever order its sets and hashes have."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scheduling.schedule import schedule
from tests.scheduling.sharing.test_lending import OVERLAPPING, SHARED, workload

_ROOT = Path(__file__).resolve().parents[2]
_PLANS = 60


def plans() -> str:
    """Words and numbers of many plans, one per line."""
    return "\n".join(repr(schedule(workload(seed, kind))) for kind in (SHARED, OVERLAPPING) for seed in range(_PLANS))


@pytest.mark.parametrize("seed", ["0", "1", "2"])
def test_a_plan_does_not_depend_on_the_order_of_hashes(seed: str) -> None:
    script = "from tests.scheduling.test_determinism import plans; print(plans())"
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join([str(_ROOT), "runtime"])}
    told = subprocess.run(
        [sys.executable, "-c", script], cwd=_ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert told.stdout.splitlines() == plans().splitlines()
