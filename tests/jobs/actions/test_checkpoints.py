"""Checkpoints that are kept: they outlive those that a training keeps by itself, and go when they are let go."""

from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient
from tidepool.protocol import CheckpointPublished

from core.errors import Conflict
from core.models import AuditEntry
from jobs.actions import checkpoints as actions
from jobs.actions.checkpoints import change_kept
from jobs.control.checkpoints import store
from jobs.files.job_folder import CHECKPOINT_FILES, job_folder
from jobs.models import Checkpoint, Job, MetricPoint
from tests.factories import set_job
from tests.scene import Scene


@pytest.fixture
def job(scene: Scene) -> Job:
    return scene.first


@pytest.fixture
def api(scene: Scene) -> APIClient:
    api = APIClient()
    api.force_login(scene.alice)
    return api


def publish(job: Job, step: int) -> Checkpoint:
    """Write a checkpoint as a training does, which keeps two."""
    folder = job_folder(job).attempt(1) / "checkpoint"
    written = folder / f"step-{step:09d}"
    written.mkdir(parents=True)
    for part in CHECKPOINT_FILES:
        (written / part).write_text(str(step))
    for old in sorted(folder.glob("step-*"))[:-2]:
        for part in old.iterdir():
            part.unlink()
        old.rmdir()
    path = f"checkpoint/{written.name}"
    store(job, CheckpointPublished(step, 1, path, size_bytes=10, sha256="0" * 64, at=timezone.now().timestamp()))
    return Checkpoint.objects.get(job=job, step=step)


def steps(job: Job) -> list[int]:
    return [row.step for row in Checkpoint.objects.filter(job=job) if files(row).is_dir()]


def files(row: Checkpoint) -> Path:
    return job_folder(row.job).path / row.path


def test_a_kept_one_outlives_the_others_and_goes_when_it_is_let_go(job: Job) -> None:
    first = publish(job, 10)
    kept = change_kept(first, True, "alice")
    assert kept is not None
    assert kept.path == "kept/attempt-1/checkpoint/step-000000010"
    for step in (20, 30, 40):
        publish(job, step)
    assert steps(job) == [40, 30, 10]
    assert (files(kept) / "state.json").read_text() == "10"

    assert change_kept(kept, False, "alice") is None
    assert steps(job) == [40, 30]
    assert not files(kept).exists()
    with pytest.raises(Conflict, match="no longer exists"):
        change_kept(kept, True, "alice")


def test_one_that_is_still_among_the_newest_is_where_it_was(job: Job) -> None:
    row = publish(job, 10)
    for _ in range(2):  # repeating it changes nothing
        change_kept(row, True, "alice")
    for _ in range(2):
        back = change_kept(row, False, "alice")
    assert back is not None
    assert (back.path, back.kept) == (row.path, False)
    assert not (job_folder(job).path / "kept" / row.path).exists()
    assert not AuditEntry.objects.exists()


def test_the_next_attempt_makes_room_among_the_others_alone(job: Job) -> None:
    change_kept(publish(job, 10), True, "alice")
    publish(job, 20)
    set_job(job, attempt=2)
    job.run.attempt = 2
    folder = job_folder(job).attempt(2) / "checkpoint"
    for step in (30, 40):
        (folder / f"step-{step:09d}").mkdir(parents=True)
        at = timezone.now().timestamp()
        store(job, CheckpointPublished(step, 1, f"checkpoint/step-{step:09d}", size_bytes=1, sha256="0", at=at))
    assert steps(job) == [40, 30, 10]


def test_no_link_has_a_folder_of_anothers_removed(job: Job, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    for name in ("step-000000010", "step-000000020", ".writing-1"):
        (theirs / name).mkdir(parents=True)
    for step in (10, 20):
        publish(job, step)
    folder = job_folder(job)
    (folder.attempt(1) / "checkpoint").rename(tmp_path / "aside")
    (folder.attempt(1) / "checkpoint").symlink_to(theirs)
    set_job(job, attempt=2)
    folder.start_attempt(2)
    for step in (30, 40):
        path = folder.attempt(2) / "checkpoint" / f"step-{step:09d}"
        path.mkdir()
        written = CheckpointPublished(step, 1, f"checkpoint/{path.name}", 10, "0" * 64, at=timezone.now().timestamp())
        store(Job.objects.get(pk=job.pk), written)
    assert len([*theirs.iterdir()]) == 3


def test_what_cannot_be_kept_is_refused(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    row = publish(job, 10)
    (files(row) / "state.json").unlink()
    with pytest.raises(Conflict, match="files of this checkpoint no longer exist"):
        change_kept(row, True, "alice")
    assert not (job_folder(job).path / "kept" / row.path).exists()  # nothing half
    (files(row) / "state.json").symlink_to("/etc/hostname")
    with pytest.raises(Conflict, match="files of this checkpoint no longer exist"):
        change_kept(row, True, "alice")
    Checkpoint.objects.filter(pk=row.pk).update(problem="torn")
    with pytest.raises(Conflict, match=r"cannot be used \(torn\)"):
        change_kept(row, True, "alice")
    monkeypatch.setattr(actions, "MOST_KEPT", 1)
    change_kept(publish(job, 20), True, "alice")
    with pytest.raises(Conflict, match="1 checkpoints of this training are already kept"):
        change_kept(publish(job, 30), True, "alice")


def test_by_rest(scene: Scene, job: Job, api: APIClient, carol: User) -> None:
    row = publish(job, 800)
    answer = api.patch(f"/api/v1/jobs/{job.pk}/checkpoints/{row.pk}/", {"kept": True}, format="json")
    assert (answer.status_code, answer.json()["kept"]) == (200, True)
    point = MetricPoint.objects.filter(job=job, name="loss", step__lte=800).order_by("step").last()
    assert point is not None
    [listed] = api.get("/api/v1/checkpoints/?kept=yes").json()["results"]
    assert (listed["job"], listed["job_name"], listed["owner"]) == (job.pk, job.name, "alice")
    assert listed["metric"] == point.value
    assert [row["step"] for row in api.get(f"/api/v1/checkpoints/?job={scene.done.pk}").json()["results"]] == [600]
    for query in ("kept=maybe", "job=none", "job=0", "after=x"):
        assert api.get(f"/api/v1/checkpoints/?{query}").status_code == 400, query

    total = {"owner": "alice", "count": 2, "size_bytes": 4_812_010, "kept_bytes": 10, "disk_bytes": None}
    assert api.get("/api/v1/checkpoints/totals/").json() == [total]
    api.force_login(carol)
    assert api.get("/api/v1/checkpoints/totals/").json() == [total]
    api.patch(f"/api/v1/jobs/{job.pk}/checkpoints/{row.pk}/", {"kept": False}, format="json")
    [entry] = AuditEntry.objects.all()
    assert (entry.actor, entry.kind, entry.after) == ("carol", "checkpoint", {"kept": False})


def test_others_see_none_of_it(job: Job, bobs: Client) -> None:
    row = publish(job, 800)
    assert job.name not in bobs.get("/checkpoints/").content.decode()
    assert bobs.post(f"/checkpoints/{row.pk}/keep/", {"kept": "yes"}).status_code == 404


def test_the_page_keeps_and_says_what_became_of_it(job: Job, alices: Client) -> None:
    row = publish(job, 800)
    address = f"/checkpoints/{row.pk}/keep/"
    page = alices.post(address, {"kept": "yes", "next": "/checkpoints/?kept=yes"}, follow=True).content.decode()
    assert "The checkpoint of T1 digits-cnn at step 800 is kept" in page
    assert f'<tr id="checkpoint-{row.pk}">' in page
    for other in ("https://example.org/", "overview", "2026"):
        answer = alices.post(address, {"kept": "no", "next": other})
        assert answer["Location"] == "/checkpoints/"
    part = alices.get(f"/jobs/{job.pk}/results/").content.decode()
    assert f'action="{address}"' in part
