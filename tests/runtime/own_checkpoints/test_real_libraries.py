"""Transformers' Trainer, Lightning and Accelerate themselves: killed, each continues without a change to its script."""

import importlib.util
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from tidepool.own_checkpoints import PROGRESS_FILE, complete_checkpoints

from tests.missing import leave_out
from tests.runtime.lab import OFF_CLUSTER
from workers.executor.curves.library_file import point_of_moment
from workers.executor.curves.parsed_points import Point

SCRIPTS = Path(__file__).parent / "scripts"
ATTEMPTS = Path(__file__).parent / "attempts.py"

pytestmark = pytest.mark.timeout(300)


@dataclass(frozen=True)
class Job:
    folder: Path

    def log(self, attempt: int) -> str:
        return (self.folder / f"attempt-{attempt}" / "log").read_text()

    def steps(self, attempt: int) -> list[str]:
        return re.findall(r"^step (.*)$", self.log(attempt), re.M)

    def weights(self, attempt: int) -> str:
        found = re.search(r"^weights (.*)$", self.log(attempt), re.M)
        assert found, self.log(attempt)
        return found[1]


JOBS = {
    "trainer": ("trainer.py", [["12", "0"], ["0", "15"], ["0", "0"]]),
    "trainer undisturbed": ("trainer.py", [["0", "0"]]),
    "lightning": ("lightning_line.py", [["12"], ["0"]]),
    "lightning undisturbed": ("lightning_line.py", [["0"]]),
    "accelerate": ("accelerate_line.py", [["12", "0", "loads"], ["0", "15", "loads"], ["0", "0", "loads"]]),
    "accelerate undisturbed": ("accelerate_line.py", [["0", "0", "loads"]]),
    "accelerate without load_state": ("accelerate_line.py", [["12", "0", ""], ["0", "0", ""]]),
}


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Job]:
    """All jobs, each with its attempts, of which each has these arguments: a script dies at a step, or in a save."""
    for library in ("transformers", "lightning", "accelerate"):
        if importlib.util.find_spec(library) is None:
            leave_out(f"{library} is not installed: scripts/setup --dev installs it")
    folder = tmp_path_factory.mktemp("jobs")
    made = {name: Job(folder / name.replace(" ", "-")) for name in JOBS}
    plan = [
        {"folder": str(made[name].folder), "script": str(SCRIPTS / script), "attempts": attempts}
        for name, (script, attempts) in JOBS.items()
    ]
    # The script is named by its path. With the checkout on `sys.path`, Transformers would take our `datasets` for that
    # of Hugging Face.
    command = [sys.executable, "-P", "-W", "ignore", str(ATTEMPTS), json.dumps(plan)]
    subprocess.run(command, check=True, env={**OFF_CLUSTER, "HOME": str(folder)}, cwd=folder, timeout=240)
    return made


def steps(first: int, last: int, prefix: str = "") -> list[str]:
    return [f"{prefix}{step}" for step in range(first, last + 1)]


def moments_of(job: Job, attempt: int) -> list[Point]:
    lines = (job.folder / f"attempt-{attempt}" / PROGRESS_FILE).read_text().splitlines()
    moments = [point_of_moment(line) for line in lines]
    assert None not in moments
    return [moment for moment in moments if moment is not None]


def test_a_trainer_continues_from_its_newest_complete_checkpoint(jobs: dict[str, Job]) -> None:
    job = jobs["trainer"]
    assert job.steps(1) == [*steps(1, 8, "first "), *steps(1, 12, "second ")], job.log(1)
    assert job.steps(2) == steps(11, 15, "second "), "the first training was complete"
    assert job.steps(3) == steps(11, 20, "second "), "what was half written is no checkpoint"
    assert job.weights(3) == jobs["trainer undisturbed"].weights(1)
    assert f"resume_from_checkpoint='{job.folder}/code/second/checkpoint-10'" in job.log(3)
    newest = complete_checkpoints(job.folder)[-1]
    assert (newest.library, newest.training, newest.step, newest.path.name) == ("transformers", 2, 20, "checkpoint-20")


def test_a_trainers_steps_and_loss_are_noted(jobs: dict[str, Job]) -> None:
    moments = moments_of(jobs["trainer"], 3)
    assert {moment.step for moment in moments if "loss" in moment.metrics} == {15, 20}
    assert (moments[-1].step, moments[-1].epoch, moments[-1].progress) == (20, 2, 1.0)


def test_lightning_continues_from_the_newest_file_that_it_has_saved(jobs: dict[str, Job]) -> None:
    job = jobs["lightning"]
    assert job.steps(1) == steps(1, 12), job.log(1)
    # At the end of an epoch: in the middle of one, Lightning takes its data from the beginning again.
    assert job.steps(2) == steps(9, 24)
    assert job.weights(2) == jobs["lightning undisturbed"].weights(1)


def test_lightnings_steps_and_loss_are_noted(jobs: dict[str, Job]) -> None:
    moments = moments_of(jobs["lightning"], 2)
    assert any({"loss", "train_loss"} <= moment.metrics.keys() for moment in moments)
    assert (moments[-1].step, moments[-1].progress) == (24, 1.0)
    parts = [moment.progress or 0.0 for moment in moments]
    assert sorted(parts) == parts


def test_accelerate_loads_the_newest_complete_state_and_counts_on(jobs: dict[str, Job]) -> None:
    job = jobs["accelerate"]
    assert job.steps(1) == steps(1, 12), job.log(1)
    assert job.steps(2) == steps(11, 15)
    assert job.steps(3) == steps(11, 20)
    assert job.weights(3) == jobs["accelerate undisturbed"].weights(1)


def test_a_loop_that_loads_no_state_begins_anew_and_saves_all_the_same(jobs: dict[str, Job]) -> None:
    job = jobs["accelerate without load_state"]
    assert job.steps(2) == steps(1, 20)
    assert job.weights(2) == jobs["accelerate undisturbed"].weights(1)
    names = sorted(path.name for path in (job.folder / "code/run/checkpoints").iterdir())
    assert names == [f"checkpoint_{number}" for number in range(6)]
