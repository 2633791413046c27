"""Fits of a replay: see `core.process.fitting_alone`."""

import os
import subprocess
import sys

IN_A_NEW_PROCESS = """
from threadpoolctl import threadpool_info
from core.process import fitting_alone

def pools():
    return {pool["filepath"]: pool["num_threads"] for pool in threadpool_info()}

with fitting_alone():
    inside = pools()
    import scipy.optimize
    assert pools().keys() == inside.keys(), "a library came that nothing limits"
assert any("scipy" in path for path in inside), inside
assert set(inside.values()) == {1}, inside
"""


def test_no_library_that_a_fit_uses_starts_threads() -> None:
    """One that is loaded only later would have as many as there are processors."""
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    subprocess.run([sys.executable, "-c", IN_A_NEW_PROCESS], check=True, timeout=120, env=environment)
