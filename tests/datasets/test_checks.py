"""A check goes from WAITING to a result whoever dies meanwhile, and only one result counts."""

import io
import os
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from core import uploads
from core.claims import Claim, ClaimLost
from core.errors import Conflict, NotAllowed, UserError
from core.file_sources import Source, Upload
from core.models import Topic
from datasets import inspection_queue
from datasets.actions import DatasetRegistration, check_again, delete_dataset, delete_version, register
from datasets.background import DatasetChecks
from datasets.inspection.inspector import inspect
from datasets.inspection_queue import Stopped, check, claim_next, finish, note_progress
from datasets.models import Dataset, DatasetVersion
from datasets.queries import find_version, why_not_ready
from jobs import actions as job_actions
from jobs.actions.submission_checks import InvalidSubmission
from tests.core.archives import tar_of
from tests.factories import InstanceGroupFactory, JobFactory, RegisteredModelVersionFactory, host_with_slots

pytestmark = pytest.mark.django_db


@pytest.fixture
def data(home: Path) -> Path:
    """A folder that is too large to be checked at once."""
    folder = settings.TIDEPOOL_DATA_ROOTS[0] / "large"
    folder.mkdir()
    for number in range(600):
        (folder / f"{number:03}.txt").write_text(str(number))
    return folder


@pytest.fixture
def waiting(alice, data) -> DatasetVersion:
    return register(alice, DatasetRegistration("large", Source(path=str(data))))


def uploaded(owner, files: dict[str, bytes], name: str = "data.tgz"):
    content = tar_of(files).getvalue() if name.endswith("gz") else files[name]
    upload = uploads.begin(owner, name, len(content))
    uploads.append(upload, 0, io.BytesIO(content))
    return upload


def turn() -> bool:
    return DatasetChecks().check_next(threading.Event())


def test_large_ones_wait_for_the_background_worker(waiting):
    assert (waiting.state, waiting.digest) == ("WAITING", "")
    assert turn()
    waiting.refresh_from_db()
    assert (waiting.state, waiting.file_count, len(waiting.digest)) == ("READY", 600, 64)
    assert not turn()


def test_small_ones_are_ready_at_once(alice, home):
    (home / "data/small").mkdir()
    (home / "data/small/a.csv").write_text("a,b\n1,2\n")
    version = register(alice, DatasetRegistration("small", Source(path="small"), kind="csv"))
    assert (version.state, version.summary["parts"][0]["items"]) == ("READY", 1)


def test_problems_are_stored_one_per_line(alice, home):
    (home / "data/bad").mkdir()
    (home / "data/bad/a.csv").write_text("a,b\n1\n1,2,3\n")
    version = register(alice, DatasetRegistration("bad", Source(path="bad"), kind="csv"))
    assert version.state == "INVALID"
    assert [line.split(":")[0] for line in version.problem.splitlines()] == [
        "a.csv has 1 fields in row 2, but 2 columns",
        "a.csv has 3 fields in row 3, but 2 columns",
    ]


def test_a_finished_upload_is_unpacked_and_checked(alice, home):
    upload = uploaded(alice, {"train.csv": b"a,b\n1,2\n", "test.csv": b"a,b\n3,4\n"})
    version = register(alice, DatasetRegistration("up", kind="csv", upload=upload.pk))
    assert version.state == "WAITING"
    assert turn()
    version.refresh_from_db()
    assert (version.state, version.archive) == ("READY", "")
    assert sorted(os.listdir(version.path)) == ["test.csv", "train.csv"]
    assert list((home / "uploads").iterdir()) == []


def test_an_archive_that_is_broken_is_said(alice, home):
    upload = uploaded(alice, {"data.zip": b"PK\x03\x04 and no more"}, "data.zip")
    version = register(alice, DatasetRegistration("up", upload=upload.pk))
    assert turn()
    version.refresh_from_db()
    assert version.state == "INVALID"
    assert "cannot be unpacked" in version.problem
    assert not Path(version.path).exists()


def test_an_upload_that_is_not_whole_is_refused(alice, home):
    upload = uploads.begin(alice, "data.tgz", 100)
    uploads.append(upload, 0, io.BytesIO(b"x" * 40))
    with pytest.raises(Conflict, match="40 of 100 bytes"):
        register(alice, DatasetRegistration("up", upload=upload.pk))
    assert not Dataset.objects.exists()


def test_a_worker_that_died_is_replaced_once_its_claim_has_expired(waiting):
    now = timezone.now()
    dead = claim_next(now)
    assert dead is not None
    assert claim_next(now + timedelta(seconds=10)) is None
    later = claim_next(now + timedelta(seconds=16))
    assert later is not None
    assert later.token != dead.token
    with pytest.raises(ClaimLost):
        note_progress(dead, 0.5)
    with pytest.raises(ClaimLost):
        finish(dead, inspect(waiting.parts, "any"))
    check(later)
    waiting.refresh_from_db()
    assert waiting.state == "READY"


def test_a_claim_is_kept_by_progress(waiting):
    claim = claim_next(timezone.now() - timedelta(seconds=14))
    assert claim is not None
    note_progress(claim, 0.25)
    assert claim_next(timezone.now() + timedelta(seconds=5)) is None
    waiting.refresh_from_db()
    assert waiting.progress == 0.25


def test_a_check_that_is_asked_to_stop_gives_its_claim_back(waiting):
    stop = threading.Event()
    stop.set()
    assert DatasetChecks().check_next(stop)
    waiting.refresh_from_db()
    assert (waiting.state, waiting.claim, waiting.progress) == ("WAITING", "", 0)
    with pytest.raises(Stopped):
        check(claim_next(timezone.now()), lambda: True)


def test_half_an_unpacked_archive_is_unpacked_again(alice, home, monkeypatch):
    upload = uploaded(alice, {"a.csv": b"a,b\n1,2\n"})
    version = register(alice, DatasetRegistration("up", kind="csv", upload=upload.pk))
    claim_next(timezone.now() - timedelta(minutes=1))  # its worker died before it marked the folder complete
    Path(version.path).mkdir(parents=True)
    (Path(version.path) / "half").write_text("x")
    assert turn()
    assert os.listdir(version.path) == ["a.csv"]


def test_states_and_progress_are_published(waiting, django_capture_on_commit_callbacks, monkeypatch):
    sent = []
    monkeypatch.setattr("core.live._send", lambda events: sent.extend(event for event, _ in events))
    monkeypatch.setattr(inspection_queue, "_TELL_SECONDS", 0)
    with django_capture_on_commit_callbacks(execute=True):
        turn()
    states = [event.data[str(waiting.dataset_id)] for event in sent]
    assert states[0]["state"] == "CHECKING"
    assert states[-1]["state"] == "READY"
    told = [state["progress"] for state in states]
    assert told == sorted(told)
    assert len(told) > 100
    assert Topic.objects.get(name="datasets").seq == sent[-1].seq


def test_the_database_refuses_states_that_cannot_be(waiting):
    wrong = [
        {"state": "READY"},
        {"state": "INVALID"},
        {"state": "DONE"},
        {"state": "CHECKING"},
        {"claim": "me"},
    ]
    for values in wrong:
        with pytest.raises(IntegrityError), transaction.atomic():
            DatasetVersion.objects.filter(pk=waiting.pk).update(**values)


# --- folders that were picked one by one ---


@pytest.fixture
def picked(home: Path) -> dict[str, str]:
    for name in ("a/train", "b/test", "c/val"):
        (home / "data" / name).mkdir(parents=True)
        (home / "data" / name / "x.csv").write_text("a,b\n1,2\n")
    return {"training": "a/train", "testing": "b/test"}


def test_picked_folders_lie_under_ibms_names_in_one(alice, home, picked):
    version = register(alice, DatasetRegistration("three", kind="csv", validation="c/val", **picked))
    assert version.state == "READY"
    assert [(part["role"], part["folder"]) for part in version.summary["parts"]] == [
        ("training", "train_db"),
        ("validation", "val_db"),
        ("testing", "test_db"),
    ]
    assert (Path(version.path) / "test_db/x.csv").read_text() == "a,b\n1,2\n"
    assert version.training == str(home / "data/a/train")


def test_one_picked_folder_is_taken_as_it_is(alice, home, picked):
    version = register(alice, DatasetRegistration("one", training="a/train"))
    assert version.path == str(home / "data/a/train")


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"training": ""}, "training"),
        ({"testing": "/etc"}, "testing"),
        ({"validation": "gone"}, "validation"),
        ({"training": "out"}, "training"),
        ({"source": Source(path="a")}, "path"),
        ({"upload": 1}, "path"),
        ({"training": "", "testing": ""}, "path"),
    ],
)
def test_picked_folders_that_do_not_fit_leave_nothing(alice, home, picked, values, field):
    (home / "data/out").symlink_to("/etc")
    with pytest.raises(UserError) as caught:
        register(alice, DatasetRegistration("three", **{**picked, **values}))
    assert list(caught.value.fields) == [field]
    assert not Dataset.objects.exists()
    assert not (home / "data/sets").exists() or not list((home / "data/sets").iterdir())


# --- use and removal ---


def test_a_job_needs_a_ready_dataset(alice, waiting, submission):
    wanted = job_actions.Submission(**{**submission, "dataset": "large"})
    with pytest.raises(InvalidSubmission) as refusal:
        job_actions.submit(wanted, alice)
    assert list(refusal.value.fields) == ["dataset"]
    claim = claim_next(timezone.now())
    note_progress(claim, 0.4)
    with pytest.raises(InvalidSubmission, match=r"\(40%\)"):
        job_actions.submit(wanted, alice)
    check(Claim(claim.row, claim.token))
    assert job_actions.submit(wanted, alice).dataset == waiting


def test_a_refused_version_says_how_to_go_on(alice, home):
    folder = home / "data/turns"
    folder.mkdir()
    (folder / "a.csv").write_text("a,b\n1,2\n")
    first = register(alice, DatasetRegistration("turns", Source(path="turns"), kind="csv"))
    (folder / "a.csv").write_text("a,b\n1\n")
    second = register(alice, DatasetRegistration("turns", Source(path="turns"), kind="csv"))
    assert "correct that row. Then check it again, or delete this version to go back to version 1." in why_not_ready(
        second
    )
    (folder / "a.csv").write_text("a,b\n1,3\n")
    check_again(alice, second)
    assert turn()
    assert why_not_ready(find_version(first.dataset)) == ""
    with pytest.raises(Conflict, match="register changed files as a new version"):
        check_again(alice, find_version(first.dataset))


def test_deleting_removes_what_was_uploaded_and_no_more(alice, home, data, picked, django_capture_on_commit_callbacks):
    mine = register(alice, DatasetRegistration("up", Source(upload=Upload("d.tgz", tar_of({"a": b"1"})))))
    links = register(alice, DatasetRegistration("links", **picked))
    folder = register(alice, DatasetRegistration("folder", Source(path=str(data))))
    with django_capture_on_commit_callbacks(execute=True):
        for version in (mine, links, folder):
            delete_dataset(alice, version.dataset)
    assert not Dataset.objects.exists()
    assert not Path(mine.path).exists()
    assert not Path(links.path).exists()
    assert (home / "data/a/train/x.csv").exists()
    assert len(os.listdir(data)) == 600


def test_what_a_training_used_stays(alice, waiting):
    turn()
    JobFactory(dataset=waiting)
    second = register(alice, DatasetRegistration("large", Source(path=waiting.path)))
    with pytest.raises(Conflict) as of_all:
        delete_dataset(alice, waiting.dataset)
    with pytest.raises(Conflict) as of_version:
        delete_version(alice, waiting)
    assert (of_all.value.code, of_version.value.code) == ("in_use", "in_use")
    delete_version(alice, second)
    with pytest.raises(Conflict, match="the only one"):
        delete_version(alice, waiting)
    DatasetVersion.objects.filter(pk=waiting.pk)._raw_delete("default")
    with pytest.raises(IntegrityError):
        connection.check_constraints()
    transaction.set_rollback(True)


def test_only_owners_and_staff_change_a_dataset(alice, bob, carol, waiting):
    for change in (
        lambda user: delete_dataset(user, waiting.dataset),
        lambda user: delete_version(user, waiting),
        lambda user: check_again(user, waiting),
    ):
        with pytest.raises(NotAllowed):
            change(bob)
    delete_dataset(carol, waiting.dataset)
    assert not Dataset.objects.exists()


def test_deleting_during_a_check_ends_it_quietly(alice, waiting, caplog):
    claim = claim_next(timezone.now())
    delete_dataset(alice, waiting.dataset)
    with pytest.raises(ClaimLost):
        check(claim)


@pytest.fixture
def submission(home: Path) -> dict:
    host_with_slots("gpu-host-1", 4)
    (home / "models/cnn").mkdir()
    (home / "models/cnn/main.py").write_text("x = 1\n")
    RegisteredModelVersionFactory(model__name="cnn", path=str(home / "models/cnn"), entry_point="main.py")
    group = InstanceGroupFactory()
    return {"name": "T", "model": "cnn", "instance_group": group.name, "max_slots": 1}
