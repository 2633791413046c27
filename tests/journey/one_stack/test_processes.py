"""Through the whole product: what the processes of a program use that no cause is measured of."""

import os
from pathlib import Path

import pytest
from tidepool.client.api import Client

from tests.journey.running_stack import RunningStack
from tests.waiting import wait_until

pytestmark = pytest.mark.journey

#: The script starts a program, as a command does. The program computes, and writes a mebibyte in each turn.
SCRIPT = """
import subprocess, sys
PROGRAM = '''
import os
while True:
    with open("written", "wb") as file:
        file.write(bytes(2**20))
        os.fsync(file.fileno())
    sum(range(10**6))
'''
subprocess.run([sys.executable, "-c", PROGRAM], check=True)
"""


def test_the_processes_of_a_program_are_seen(stack: RunningStack, tmp_path: Path) -> None:
    with stack.api() as api:
        token = api.post("me/token/").json()["token"]
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    with Client(stack.url, token) as client:
        job = client.submit(script, name="program")
        wait_until(lambda: any((use.cores or 0) > 0.05 for use in job.why_slow().process_ranks), seconds=90)
        found = job.why_slow()
        job.cancel()
    assert found.text.startswith("Its processes use ")
    assert found.processes.endswith("Their network is not counted, because they share that of their host.")
    [use] = found.process_ranks
    assert use.rank == 0
    assert use.cores is not None
    assert use.cores < (os.cpu_count() or 1) + 0.5
    assert use.written_rate is not None
    assert found.process_points
