"""The limit on what a user's trainings take on the disk: what is measured when, warnings, and refused submissions."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from core.errors import DiskFull
from jobs.control.disk_use import due, measure
from jobs.files.job_folder import job_folder
from jobs.models import Checkpoint, DiskUse, Job
from jobs.queries.disk_room import disk_room
from tests.factories import JobFactory
from tests.jobs.conftest import Submit

pytestmark = pytest.mark.django_db
MIB = 1024**2
NOW = timezone.now()


def taken(job: Job, size: int, minutes_ago: float = 0) -> None:
    DiskUse.objects.create(job=job, size_bytes=size, measured_at=NOW - timedelta(minutes=minutes_ago))


def test_the_folder_of_a_training_is_measured(submit: Submit, alice: User, settings: Any) -> None:
    settings.TIDEPOOL_USER_DISK = 100 * MIB
    job = submit()
    checkpoints = job_folder(job).attempt(1) / "checkpoint"
    checkpoints.mkdir(parents=True)
    (checkpoints / "state").write_bytes(bytes(5 * MIB))
    assert measure(job, NOW, lambda: False)
    (checkpoints / "more").write_bytes(bytes(2 * MIB))
    assert measure(job, NOW, lambda: False)
    assert 7 * MIB <= DiskUse.objects.get(job=job).size_bytes < 8 * MIB
    assert disk_room(alice).used == DiskUse.objects.get().size_bytes


def test_a_measurement_that_is_stopped_stores_nothing(submit: Submit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.control.disk_use._FILES_AT_ONCE", 1)
    job = submit()
    assert not measure(job, NOW, lambda: True)
    assert not DiskUse.objects.exists()


def test_trainings_are_measured_often_while_they_are_not_over() -> None:
    never, runs, quiet = JobFactory(), JobFactory(), JobFactory()
    for job, minutes in ((runs, 11), (quiet, 9)):
        taken(job, 1, minutes)
    ended, old, known = (
        JobFactory(state="SUCCEEDED", finished_at=NOW - timedelta(minutes=minutes)) for minutes in (5, 3000, 3000)
    )
    for job, minutes in ((ended, 6), (old, 1500), (known, 1000)):
        taken(job, 1, minutes)
    assert [*due(NOW)] == [never, old, runs, ended]


@pytest.mark.parametrize(
    ("used", "words"),
    [(79, ""), (80, "take 80 MiB of the 100 MiB"), (100, "no further one of yours is accepted"), (120, "take 120 MiB")],
)
def test_train_warns_from_four_fifths_on(
    used: int, words: str, submit: Submit, alice: User, alice_client: Client, settings: Any
) -> None:
    settings.TIDEPOOL_USER_DISK = 100 * MIB
    taken(submit(), used * MIB)
    taken(JobFactory(), 500 * MIB)  # of somebody else
    assert words in disk_room(alice).warning
    page = alice_client.get("/jobs/new/").content.decode()
    assert ("on the disk that you may have" in page) == bool(words)


def test_beyond_the_limit_submissions_are_refused_in_words(
    submit: Submit, alice_api: APIClient, given: dict[str, Any], settings: Any
) -> None:
    settings.TIDEPOOL_USER_DISK = 100 * MIB
    job = submit()
    taken(job, 100 * MIB)
    with pytest.raises(DiskFull, match=r"take 100 MiB of the 100 MiB .* Remove checkpoints"):
        submit()
    answer = alice_api.post(f"/api/v1/jobs/{job.pk}/clone/")
    assert (answer.status_code, answer.json()["code"]) == (507, "disk_full")
    assert Job.objects.count() == 1


@pytest.mark.parametrize(
    ("used", "words"),
    [
        (79, ""),
        (80, "takes 80 MiB of the 100 MiB on the disk that a training may have. Beyond that, no further one of yours"),
        (100, "takes 100 MiB of the 100 MiB on the disk that a training may have: no further one of yours is accepted"),
    ],
)
def test_a_training_that_takes_too_much_is_named(
    used: int, words: str, submit: Submit, alice: User, alice_client: Client, settings: Any
) -> None:
    settings.TIDEPOOL_TRAINING_DISK = 100 * MIB
    small, large = submit(), submit()
    taken(small, 60 * MIB)
    taken(large, used * MIB)
    taken(JobFactory(), 500 * MIB)  # of somebody else
    assert (f"Training {large.pk} {words}" if words else "") in disk_room(alice).warning
    assert bool(disk_room(alice).warning) == bool(words)
    if used == 100:
        with pytest.raises(DiskFull, match=rf"^Training {large.pk} takes"):
            submit()
    else:
        assert submit().pk
    page = " ".join(alice_client.get(f"/jobs/{large.pk}/results/").content.decode().split())
    assert f"they take {used} MiB on the disk, {used} % of the 100 MiB that a training may have" in page


def test_the_totals_say_what_all_trainings_of_a_user_take(
    submit: Submit, alice: User, alice_api: APIClient, alice_client: Client
) -> None:
    job = submit()
    Checkpoint.objects.create(job=job, attempt=1, path="1", step=1, epoch=0, size_bytes=MIB, created_at=NOW)
    [row] = alice_api.get("/api/v1/checkpoints/totals/").json()
    assert row["disk_bytes"] is None
    taken(job, 3 * MIB)
    taken(submit(), 4 * MIB)
    [row] = alice_api.get("/api/v1/checkpoints/totals/").json()
    assert (row["owner"], row["size_bytes"], row["disk_bytes"]) == ("alice", MIB, 7 * MIB)
    assert '<td class="number">7 MiB</td>' in alice_client.get("/checkpoints/").content.decode()


def test_without_a_limit_nothing_is_refused(submit: Submit, alice: User) -> None:
    taken(submit(), 10**15)
    assert submit().pk
    assert (disk_room(alice).limit, disk_room(alice).warning) == (0, "")


def test_the_page_says_what_a_training_takes(submit: Submit, alice_client: Client) -> None:
    job = submit()
    assert "on the disk" not in alice_client.get(f"/jobs/{job.pk}/results/").content.decode()
    taken(job, 3 * MIB)
    assert "they take 3 MiB on the disk" in " ".join(
        alice_client.get(f"/jobs/{job.pk}/results/").content.decode().split()
    )
