"""Several processes of a script or function on the CPUs of one host, in the place of one rank.

They find torchrun's variables, as the processes of `torchrun --standalone` do. The rank ends when all have ended, or
with the first one that fails. The first process prints into the rank's log, and each of the others into a file of its
own in LOG_DIR, so that lines and values are not repeated; all share the rank's stderr, for their errors.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, NoReturn

from tidepool.env import local_process_environment, own_log_folder
from tidepool.gang import reserve_port
from tidepool.script_modules import module_of

__all__ = ["run_script", "start_processes"]

_LOOK_SECONDS: Final = 0.1
#: Seconds for the other processes to end after SIGTERM, when one has failed.
_GRACE_SECONDS: Final = 5.0


def run_script(script: str, count: int) -> NoReturn:
    """Run the script with the words behind the entry point's name. script: path in the folder of the code."""
    folder = Path(sys.argv[0]).resolve().parents[len(Path(script).parts) - 1]
    module = module_of(folder, script)
    words = [str(folder / script)] if module is None else ["-m", module.name]
    start_processes([*words, *sys.argv[1:]], count)


def start_processes(words: Sequence[str], count: int) -> NoReturn:
    """Run a Python script with its words in `count` processes; exit with 0, or with the code of the first failure."""
    with closing(reserve_port()) as meeting:
        port = str(meeting.getsockname()[1])
        processes = [
            _started([sys.executable, *words], rank, local_process_environment(rank, count, port))
            for rank in range(count)
        ]
        signal.signal(signal.SIGTERM, lambda number, frame: _end(processes))
        code = _first_failure(processes)
    _end(processes)
    sys.exit(code if code >= 0 else 128 - code)  # the code that a shell reports for a signal


def _started(command: Sequence[str], rank: int, environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    folder = own_log_folder()
    if rank == 0 or folder is None:
        return subprocess.Popen(command, env=environment)
    with open(folder / f"stdout.rank-{rank}", "ab") as output:
        return subprocess.Popen(command, env=environment, stdout=output)


def _first_failure(processes: Sequence["subprocess.Popen[bytes]"]) -> int:
    while True:
        codes = [process.poll() for process in processes]
        if failed := [code for code in codes if code]:
            return failed[0]
        if all(code == 0 for code in codes):
            return 0
        time.sleep(_LOOK_SECONDS)


def _end(processes: Sequence["subprocess.Popen[bytes]"]) -> None:
    living = [process for process in processes if process.poll() is None]
    for process in living:
        process.terminate()
    deadline = time.monotonic() + _GRACE_SECONDS
    for process in living:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
