"""Scripts that plain Python runs, off any cluster, in processes that have torch loaded: the references of tests."""

import multiprocessing
import os
import runpy
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path

from tests.runtime.lab import OFF_CLUSTER

__all__ = ["run_off_cluster", "start_off_cluster"]

# Loading torch takes most of the time of such a run.
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["torch"])


def start_off_cluster(script: Path, *arguments: str | Path) -> BaseProcess:
    """The process of the script, which is its own `__main__`; the caller joins or kills it."""
    process = _PROCESSES.Process(target=_run, args=(str(script), [str(argument) for argument in arguments]))
    process.start()
    return process


def run_off_cluster(script: Path, *arguments: str | Path, seconds: float = 150.0) -> None:
    """Run the script to its end; an AssertionError where it fails or takes longer."""
    process = start_off_cluster(script, *arguments)
    process.join(seconds)
    process.kill()
    assert process.exitcode == 0, f"{script} ended with {process.exitcode}"


def _run(script: str, arguments: list[str]) -> None:
    os.environ.clear()
    os.environ.update(OFF_CLUSTER)
    sys.path.insert(0, str(Path(script).parent))
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")
