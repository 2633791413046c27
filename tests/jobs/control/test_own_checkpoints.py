"""Checkpoints that libraries save by themselves, through the database and the folder of the job: the next start."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tidepool.own_checkpoints.saves import SaveJournal

from jobs import actions
from jobs.control.checkpoints import is_resumable, note_saves, stop_words
from jobs.files.job_folder import job_folder
from jobs.models import InstanceGroup, Job
from jobs.states import JobState
from models_registry.models import RegisteredModelVersion
from models_registry.script_declarations import Declared
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit

pytestmark = pytest.mark.django_db


@pytest.fixture
def code(code: RegisteredModelVersion) -> RegisteredModelVersion:
    RegisteredModelVersion.objects.filter(pk=code.pk).update(engine=RegisteredModelVersion.Engine.FIXED)
    return code


@pytest.fixture
def job(cluster: Cluster, submit: Submit, code: RegisteredModelVersion) -> Job:
    """A training of one rank that runs."""
    job = submit(max_slots=1)
    cluster.turn()
    cluster.train(job, plain=True)
    return fresh(job)


def fresh(job: Job) -> Job:
    return Job.objects.get(pk=job.pk)


def save(job: Job, folder: str, step: int, library: str = "transformers") -> Path:
    """Save as the rank does: in its working folder, or in CHECKPOINT_DIR."""
    attempt = job_folder(job).attempt(fresh(job).run.attempt)
    top = attempt / "checkpoint" if folder == "CHECKPOINT_DIR" else job_folder(job).code / folder
    path = top / f"checkpoint-{step}"
    path.mkdir(parents=True)
    SaveJournal(attempt, 0, 1).ends(library, 1, step, path)
    return path


def hold_back(cluster: Cluster, job: Job) -> Job:
    actions.suspend(job.pk, "alice")
    cluster.settle()
    assert fresh(job).state == JobState.SUSPENDED
    return fresh(job)


@pytest.mark.parametrize("folder", ["out", "CHECKPOINT_DIR"])
def test_it_says_where_it_continues_though_its_processes_were_killed(cluster: Cluster, job: Job, folder: str) -> None:
    save(job, folder, 40)
    assert hold_back(cluster, job).reason_text == (
        "Suspended. Once resumed, it continues after step 40, from the newest checkpoint that its Trainer has saved."
    )


def test_checkpoint_dir_goes_to_the_next_attempt(cluster: Cluster, job: Job) -> None:
    save(job, "CHECKPOINT_DIR", 40)
    hold_back(cluster, job)
    actions.resume(job.pk, "alice")
    cluster.turn()
    folder = job_folder(job).attempt(2) / "checkpoint"
    assert (fresh(job).run.attempt, [path.name for path in folder.iterdir()]) == (2, ["checkpoint-40"])
    assert is_resumable(fresh(job))


def test_one_that_the_library_has_removed_continues_nothing(cluster: Cluster, job: Job) -> None:
    save(job, "out", 40).rmdir()
    assert "it starts again; what it left" in hold_back(cluster, job).reason_text


@pytest.mark.parametrize("loads", [True, False])
def test_a_state_of_accelerate_counts_if_the_script_loads_one(cluster: Cluster, job: Job, *, loads: bool) -> None:
    declared = Declared(continues="load_state" if loads else "anew")
    RegisteredModelVersion.objects.filter(pk=job.model_id).update(script=declared.to_json())
    save(job, "out", 3, library="accelerate")
    text = hold_back(cluster, job).reason_text
    assert ("the newest state that Accelerate has saved" in text, "it starts again; what it left" in text) == (
        loads,
        not loads,
    )


def test_the_time_of_the_newest_is_shown(job: Job) -> None:
    path = save(job, "out", 40)
    os.utime(path, (1_000_000_000, 1_000_000_000))
    note_saves()
    assert fresh(job).run.saved_at == datetime.fromtimestamp(1_000_000_000, UTC)


def test_one_that_saves_is_not_given_up_however_often_it_is_killed(cluster: Cluster, job: Job) -> None:
    for life in (1, 2, 3, 4):
        assert fresh(job).run.attempt == life
        save(job, f"out-{life}", 40)
        [rank] = cluster.ranks(job)
        host = cluster.hosts[rank.member_id.split(".")[0]]
        host.end(rank.slot, signal=9)
        host.send()
        assert "it continues after step 40" in fresh(job).reason_text
        cluster.settle()
        cluster.turn()
        cluster.train(job, plain=True)


@pytest.mark.parametrize(
    ("continues", "words"),
    [
        ("trainer", "from the newest checkpoint that the Trainer has saved, as if the script had given resume_from"),
        ("lightning", "from the newest checkpoint that Lightning has saved, as if the script had given ckpt_path;"),
        ("load_state", "from the newest state that Accelerate has saved if it loads that with load_state()."),
        ("anew", "it starts from the beginning: with Accelerate, the loop is the script's"),
    ],
)
def test_what_a_library_cannot_do_is_said_beforehand(group: InstanceGroup, continues: str, words: str) -> None:
    assert words in stop_words(group, continues=continues)  # type: ignore[arg-type]
    assert "otherwise it starts again" not in stop_words(group, continues=continues)  # type: ignore[arg-type]
