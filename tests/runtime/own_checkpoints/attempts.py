"""Runs attempts of jobs, each in a fork of a process that has the libraries loaded: to load them takes longest.

`python -P attempts.py PLAN`: a list of jobs as JSON, each with `folder`, `script` and `attempts`, the arguments of the
script in each of them. Writes `attempt-<n>/log` in the folder of the job.
"""

import importlib
import json
import os
import runpy
import sys
import traceback
from pathlib import Path
from typing import NoReturn

from tidepool import own_checkpoints
from tidepool.env import RankContext
from tidepool.protocol import LaunchSpec


def main() -> None:
    for library in ("transformers.trainer", "lightning", "accelerate"):
        importlib.import_module(library)
    for job in json.loads(sys.argv[1]):
        for number, arguments in enumerate(job["attempts"], start=1):
            pid = os.fork()
            if pid == 0:
                run(Path(job["folder"]), number, job["script"], arguments)
            os.waitpid(pid, 0)


def run(job: Path, number: int, script: str, arguments: list[str]) -> NoReturn:
    try:
        folder, code = job / f"attempt-{number}", job / "code"
        for each in (folder / "journal", folder / "checkpoint", code):
            each.mkdir(parents=True, exist_ok=True)
        log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        launch = LaunchSpec(str(folder), str(code), script, arguments, "", {}, [], 1, 1, None, 0, "sum")
        context = RankContext(1, number, "a.0.1", "a", 0, "127.0.0.1", launch)
        own_checkpoints.remove_half_written(context)
        own_checkpoints.hook_libraries(context, 0, 1)
        os.chdir(code)
        sys.argv = [script, *arguments]
        runpy.run_path(script, run_name="__main__")
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
