"""What an executor in a PID namespace of its own tells from the processes and records of an earlier one."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from tidepool import json_sockets, procfs

from tests.hosts.machines import ROOT, why_impossible
from tests.missing import leave_out
from workers.executor.dead_shims import _pid_is_its_own
from workers.executor.namespace import is_left_out_of_sight

#: Higher than any that the kernel gives.
_NO_PID = 2**22 + 1


def in_own_namespace(code: str) -> str:
    """Run a script as the second process of a PID namespace, with a /proc of its own, and return what it prints."""
    if reason := why_impossible():
        leave_out(f"no namespaces of our own: {reason}")
    environment = {"PYTHONPATH": f"{ROOT}:{ROOT / 'runtime'}"}
    # A shell stays the first process: the kernel would give the script its number.
    command = ["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", '"$@"; true', "sh", sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.root
def test_what_listens_outside_of_the_namespace_is_out_of_sight(tmp_path: Path) -> None:
    looked = f"""
from pathlib import Path
from workers.executor.namespace import is_left_out_of_sight
print(is_left_out_of_sight(Path({str(tmp_path)!r})))
"""
    assert in_own_namespace(looked) == "False"
    with json_sockets.listen(tmp_path / "1.1.shim.sock"):
        assert in_own_namespace(looked) == "True"
        assert not is_left_out_of_sight(tmp_path), "it is in sight here"
    assert in_own_namespace(looked) == "False", "its socket is left, and nobody listens"


@pytest.mark.root
def test_a_pid_from_before_the_namespace_means_nothing_in_it() -> None:
    started_at = time.time() - 60
    asked = "from tidepool import procfs; from workers.executor.dead_shims import _pid_is_its_own as own; "
    for seconds, answer in ((0, "False"), (120, "True")):
        call = f"own({_NO_PID}, {started_at + seconds}, procfs.numbers_begun_at())"
        assert in_own_namespace(f"{asked}print({call})") == answer


def test_a_session_is_a_ranks_although_its_first_process_has_ended() -> None:
    begun_at = procfs.numbers_begun_at()
    assert _pid_is_its_own(_NO_PID, time.time(), begun_at)
    assert not _pid_is_its_own(_NO_PID, begun_at - 60, begun_at)
