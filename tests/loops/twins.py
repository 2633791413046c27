"""Plain twins: each runs once, in a process that has torch loaded."""

import json
import multiprocessing
import os
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from tests.loops.loop import Loop
from tests.runtime.lab import OFF_CLUSTER

__all__ = ["Course", "run_twin"]

_PROCESSES = multiprocessing.get_context("forkserver")
# A process imports the main module's modules again, unless they are there.
_PROCESSES.set_forkserver_preload(["tests.loops.verdict", "tidepool.torch", "torch._dynamo"])
_PATIENCE_SECONDS = 120.0


@dataclass(frozen=True)
class Course:
    """The plain training: its number of steps, the steps before each pass over the data, and its final weights."""

    steps: int
    passes: list[int]
    weights: dict[str, torch.Tensor]


def run_twin(loop: Loop, folder: Path) -> Course:
    """Run the plain twin, with its files in the folder. Raises AssertionError if it fails."""
    folder.mkdir(parents=True)
    process = _PROCESSES.Process(target=_run, args=(str(loop.script), str(folder)))
    process.start()
    process.join(_PATIENCE_SECONDS)
    process.kill()
    assert process.exitcode == 0, f"the plain twin of {loop.name} failed:\n{(folder / 'output').read_text()[-2000:]}"
    course = json.loads((folder / "course.json").read_text())
    passes = [begun for begun in course["passes"] if begun < course["steps"]]
    return Course(course["steps"], passes, torch.load(folder / "final-plain.pt", weights_only=True))


def _run(script: str, folder: str) -> None:
    output = os.open(f"{folder}/output", os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    multiprocessing.set_start_method("fork", force=True)  # for the workers of loaders, as in a plain process
    os.environ.clear()
    os.environ.update(OFF_CLUSTER, PLAIN="1", RESULT_DIR=folder, DATA_DIR=folder)
    sys.path.insert(0, str(Path(script).parent))
    sys.argv = [script]
    runpy.run_path(script, run_name="__main__")
