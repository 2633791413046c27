"""Tests of submissions: what is taken, the sentences of refusals, and that a refusal leaves nothing behind."""

import io
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from django.conf import settings
from django.contrib.auth.models import User
from django.db import OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone
from safetensors.torch import save

from core import uploads
from core.models import Upload
from jobs import actions
from jobs.actions import InvalidSubmission, Submission, submission
from jobs.actions.initial_state import bring, find_beginning
from jobs.actions.submission_checks import Problems
from jobs.control.dispatch import launch_spec
from jobs.control.snapshots import snapshot
from jobs.files.job_folder import job_folder, safe_name
from jobs.models import Checkpoint, InstanceGroup, Job, JobEvent
from jobs.states import JobState, Reason
from models_registry.models import RegisteredModelVersion
from tests.factories import InstanceGroupFactory, JobFactory, set_job
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit

pytestmark = pytest.mark.django_db


def folders() -> set[str]:
    return {path.name for path in Path(settings.TIDEPOOL_RESULTS_ROOT).glob("*/batchworkdir/*")}


def test_a_job_waits_with_its_first_event(submit: Submit) -> None:
    job = submit()
    assert (job.state, job.min_slots, job.max_slots, job.priority) == (JobState.PENDING, 1, 8, 5000)
    event = JobEvent.objects.get(job=job)
    assert (event.seq, event.old, event.new, event.reason, event.actor) == (1, "", "PENDING", Reason.SUBMITTED, "alice")


def test_the_code_is_copied(submit: Submit, code: RegisteredModelVersion) -> None:
    job = submit()
    folder = job_folder(job)
    script = folder.path / "_submitted_code" / "digits-cnn" / "main.py"
    assert script.read_text() == "print('training')\n"
    (Path(code.path) / "main.py").write_text("changed")
    assert script.read_text() == "print('training')\n"
    for name in ("log", "checkpoint", "model", "metrics.jsonl", "plans.jsonl", "val_dict_list.json"):
        assert (folder.path / name).readlink() == Path("current") / name


def test_references_may_be_ids(submit: Submit, code: RegisteredModelVersion, group: InstanceGroup) -> None:
    job = submit(model=code.model.pk, instance_group=str(group.pk))
    assert (job.model, job.instance_group) == (code, group)


@pytest.mark.parametrize(("most", "virtual"), [(1, 1), (2, 2), (3, 4), (8, 8)])
def test_bitwise_has_virtual_ranks_for_good(submit: Submit, most: int, virtual: int) -> None:
    job = submit(exactness="bitwise", max_slots=most)
    assert (job.exactness, job.virtual_ranks) == ("bitwise", virtual)
    assert submit(max_slots=most).virtual_ranks is None


def test_a_bitwise_training_never_has_more_gpus_than_virtual_ranks(submit: Submit) -> None:
    job = submit(exactness="bitwise", max_slots=3)
    actions.change_job(job.pk, actions.JobChange(max_slots=4), "alice")
    assert Job.objects.get(pk=job.pk).max_slots == 4
    with pytest.raises(InvalidSubmission, match="4 virtual ranks") as caught:
        actions.change_job(job.pk, actions.JobChange(max_slots=5), "alice")
    assert list(caught.value.fields) == ["max_slots"]
    actions.change_job(job.pk, actions.JobChange(max_slots=2), "alice")
    assert Job.objects.get(pk=job.pk).virtual_ranks == 4
    assert actions.clone(job, job.owner).virtual_ranks == 4


def test_a_script_that_is_not_elastic_has_an_exactness_of_its_own(submit: Submit, code: RegisteredModelVersion) -> None:
    RegisteredModelVersion.objects.filter(pk=code.pk).update(engine=RegisteredModelVersion.Engine.FIXED)
    with pytest.raises(InvalidSubmission) as caught:
        submit(exactness="bitwise")
    assert list(caught.value.fields) == ["exactness"]


def test_the_groups_priority_is_the_default(submit: Submit, group: InstanceGroup) -> None:
    InstanceGroup.objects.filter(pk=group.pk).update(default_priority=7)
    assert submit(priority=None).priority == 7


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "unknown model": ({"model": "nope"}, "model", "Model 'nope' not found"),
    "unknown dataset": ({"dataset": 999}, "dataset", "Dataset '999' not found"),
    "unknown group": ({"instance_group": "nope"}, "instance_group", "Instance group 'nope' not found"),
    "max below min": ({"min_slots": 4, "max_slots": 2}, "max_slots", "below the minimum of 4"),
    "max above the capacity": ({"max_slots": 9}, "max_slots", "sig-elastic has 8 GPUs: request at most 8, not 9."),
    "no GPU": ({"max_slots": 0}, "max_slots", "of 1 or more"),
    "minimum of none": ({"min_slots": 0}, "min_slots", "of 1 or more"),
    "a minimum that is true": ({"min_slots": True}, "min_slots", "of 1 or more"),
    "a maximum in words": ({"max_slots": "eight"}, "max_slots", "of 1 or more"),
    "priority 0": ({"priority": 0}, "priority", "The priority must be a whole number from 1 to 10,000."),
    "priority 10001": ({"priority": 10001}, "priority", "from 1 to 10,000"),
    "priority 1.5": ({"priority": 1.5}, "priority", "from 1 to 10,000"),
    "no name": ({"name": "  "}, "name", "Enter a name"),
    "a name that is no text": ({"name": 5}, "name", "Enter a name"),
    "a name with a tab": ({"name": "a\tb"}, "name", "control"),
    "a name with NUL": ({"name": "a\0b"}, "name", "control"),
    "a name with half a letter": ({"name": "a\ud800b"}, "name", "control"),
    "a long name": ({"name": "x" * 256}, "name", "256 characters"),
    "a list as parameter": ({"parameters": {"sizes": [1, 2]}}, "parameters", "sizes"),
    "null as parameter": ({"parameters": {"lr": None}}, "parameters", "lr"),
    "an infinite parameter": ({"parameters": {"lr": float("inf")}}, "parameters", "lr"),
    "a parameter with NUL": ({"parameters": {"path": "a\0"}}, "parameters", "path"),
    "a parameter's name with a blank": ({"parameters": {"learning rate": 1}}, "parameters", "'learning rate'"),
    "parameters as a list": ({"parameters": [1]}, "parameters", "as an object"),
    "a parameter that is no exact number": ({"parameters": {"epochs": 2**60}}, "parameters", "epochs"),
    "an exactness that there is not": ({"exactness": "about"}, "exactness", "is 'sum' or 'bitwise'"),
    "virtual ranks without bitwise": ({"virtual_ranks": 8}, "virtual_ranks", "Only exactness 'bitwise'"),
    "fewer virtual ranks than GPUs": (
        {"exactness": "bitwise", "virtual_ranks": 3, "max_slots": 4},
        "virtual_ranks",
        "3 virtual ranks compute on at most 3 GPUs, not 4",
    ),
    "virtual ranks of none": ({"exactness": "bitwise", "virtual_ranks": 0}, "virtual_ranks", "from 1 to 1,024"),
    "virtual ranks without end": ({"exactness": "bitwise", "virtual_ranks": 2**40}, "virtual_ranks", "from 1 to 1,024"),
    "virtual ranks in words": ({"exactness": "bitwise", "virtual_ranks": "8"}, "virtual_ranks", "from 1 to 1,024"),
    "a batch that changes at will": ({"adaptive": "on"}, "adaptive", "is 'script' or 'off'"),
    "autologging at will": ({"autolog": True}, "autolog", "is 'on' or 'off'"),
    "a batch that is true": ({"adaptive": True}, "adaptive", "is 'script' or 'off'"),
    "a batch in a list": ({"adaptive": ["off"]}, "adaptive", "is 'script' or 'off'"),
    "an unknown placement": ({"placement": "host"}, "placement", "'script' or 'any' or 'equal' or 'one_host'"),
    "one host for what moves": ({"placement": "one_host"}, "placement", "digits-cnn is elastic"),
    "a negative seed": ({"seed": -1}, "seed", "whole number"),
    "an effective batch of none": ({"effective_batch_size": 0}, "effective_batch_size", "of 1 or more"),
    "unknown checkpoint": ({"checkpoint": 999}, "checkpoint", "Checkpoint 999 not found among those of your trainings"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_is_said_and_nothing_is_created(case: str, submit: Submit) -> None:
    changes, field, sentence = WRONG[case]
    before = folders()
    with pytest.raises(InvalidSubmission) as caught:
        submit(**changes)
    assert list(caught.value.fields) == [field]
    [said] = caught.value.fields[field]
    assert sentence in said
    assert said.endswith(".")
    assert str(caught.value) == said
    assert not Job.objects.exists()
    assert folders() == before


def test_all_mistakes_are_said_at_once(submit: Submit) -> None:
    with pytest.raises(InvalidSubmission) as caught:
        submit(name="", model="nope", max_slots=99, priority=-1)
    assert set(caught.value.fields) == {"name", "model", "max_slots", "priority"}


def test_names_are_normalised(submit: Submit) -> None:
    assert submit(name="Cafe\u0301").name == "Caf\u00e9"


def test_a_model_whose_script_is_gone(submit: Submit, code: RegisteredModelVersion) -> None:
    (Path(code.path) / "main.py").unlink()
    with pytest.raises(InvalidSubmission, match=r"main\.py") as caught:
        submit()
    assert list(caught.value.fields) == ["model"]


def test_a_failure_while_writing_leaves_nothing(
    submit: Submit, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = folders()

    def refuse(*args: object, **kwargs: object) -> None:
        raise RuntimeError("the disk is full")

    monkeypatch.setattr(submission, "record", refuse)
    with pytest.raises(RuntimeError):
        submit()
    assert not Job.objects.exists()
    assert folders() == before


@pytest.mark.django_db(transaction=True)
def test_a_failure_of_the_commit_leaves_nothing(submit: Submit, monkeypatch: pytest.MonkeyPatch) -> None:
    before = folders()

    def refuse(connection: BaseDatabaseWrapper) -> None:
        connection.rollback()
        raise OperationalError("the disk is full")

    monkeypatch.setattr(type(connections["default"]), "commit", refuse)
    with pytest.raises(OperationalError):
        submit()
    monkeypatch.undo()
    assert not Job.objects.exists()
    assert folders() == before


def test_a_folder_left_by_another_database_is_kept_aside(submit: Submit) -> None:
    first = submit()
    left = job_folder(first).path.with_name(str(first.pk + 1))
    left.mkdir()
    (left / "precious").write_text("result")
    stale, other = left.with_name("alice-1-2"), left.with_name(f"wmla-{first.pk}")
    stale.symlink_to(f"{left.name}/current")
    other.symlink_to(f"{first.pk}/current")
    second = submit()
    assert (stale.is_symlink(), other.is_symlink()) == (False, True), "the new job is not found by the old one's id"
    assert not (job_folder(second).path / "precious").exists()
    [kept] = left.parent.glob(f"{second.pk}.replaced-*")
    assert (kept / "precious").read_text() == "result"


def test_only_members_use_a_group_that_has_members(
    cluster: Cluster, given: dict[str, Any], group: InstanceGroup, alice: User, bob: User, carol: User
) -> None:
    group.members.add(bob)
    with pytest.raises(InvalidSubmission) as caught:
        actions.submit(Submission(**given), alice)
    assert list(caught.value.fields) == ["instance_group"]
    assert actions.submit(Submission(**given), bob).owner == bob
    assert actions.submit(Submission(**given), carol).owner == carol


def test_the_only_group_need_not_be_named(submit: Submit, group: InstanceGroup) -> None:
    assert submit(instance_group=None).instance_group == group
    other = InstanceGroupFactory(name="vision")
    with pytest.raises(InvalidSubmission, match="Choose an instance group: sig-elastic, vision") as caught:
        submit(instance_group=None)
    assert list(caught.value.fields) == ["instance_group"]
    InstanceGroup.objects.filter(pk__in=[group.pk, other.pk]).update(state=InstanceGroup.State.STOPPED)
    with pytest.raises(InvalidSubmission, match="ask an administrator"):
        submit(instance_group=None)


def test_a_fixed_size_script_needs_all_its_gpus(submit: Submit, code: RegisteredModelVersion) -> None:
    RegisteredModelVersion.objects.filter(pk=code.pk).update(engine=RegisteredModelVersion.Engine.FIXED)
    job = submit(min_slots=1, max_slots=4)
    assert (job.min_slots, job.max_slots) == (4, 4)


def test_one_host_has_to_be_large_enough(submit: Submit, code: RegisteredModelVersion) -> None:
    RegisteredModelVersion.objects.filter(pk=code.pk).update(engine=RegisteredModelVersion.Engine.FIXED)
    with pytest.raises(InvalidSubmission, match="at most 4") as caught:
        submit(max_slots=5, placement="one_host")
    assert list(caught.value.fields) == ["placement"]
    job = submit(max_slots=4, placement="one_host")
    [view] = snapshot(timezone.now()).jobs
    assert (view.id, view.one_host) == (job.pk, True)


def test_a_single_process_gets_one_gpu(submit: Submit, code: RegisteredModelVersion) -> None:
    RegisteredModelVersion.objects.filter(pk=code.pk).update(engine=RegisteredModelVersion.Engine.SINGLE)
    with pytest.raises(InvalidSubmission, match="single process"):
        submit(max_slots=2)
    assert submit(max_slots=1).min_slots == 1


def test_anothers_checkpoint_does_not_exist(submit: Submit, bob: User) -> None:
    theirs = JobFactory(owner=bob)
    point = Checkpoint.objects.create(
        job=theirs, attempt=1, step=1, epoch=0, path="x", size_bytes=1, sha256="", created_at=theirs.submitted_at
    )
    with pytest.raises(InvalidSubmission) as caught:
        submit(checkpoint=point.pk)
    assert list(caught.value.fields) == ["checkpoint"]


def test_a_checkpoint_whose_files_are_gone_is_refused(submit: Submit) -> None:
    mine = submit()
    point = Checkpoint.objects.create(
        job=mine, attempt=1, step=1, epoch=0, path="x", size_bytes=1, sha256="", created_at=mine.submitted_at
    )
    with pytest.raises(InvalidSubmission, match="choose a newer one"):
        submit(checkpoint=point.pk)


def test_a_clone_trains_the_code_of_the_original(submit: Submit, code: RegisteredModelVersion, alice: User) -> None:
    job = submit(parameters={"lr": 0.1})
    (Path(code.path) / "main.py").write_text("changed")
    copy = actions.clone(job, alice)
    assert (copy.name, copy.parameters, copy.model) == (job.name, {"lr": 0.1}, job.model)
    assert (job_folder(copy).code / "main.py").read_text() == "print('training')\n"


@pytest.mark.parametrize(
    ("name", "folder"), [("..", "_."), ("a/b", "a_b"), (".hidden", "_hidden"), ("ä" * 200, "ä" * 60), ("T1 x", "T1 x")]
)
def test_folder_names_stay_inside_their_folder(name: str, folder: str) -> None:
    assert safe_name(name) == folder


def trained(submit: Submit, *, final: bool = True, step: int = 7) -> tuple[Job, Checkpoint]:
    """A job that has left a checkpoint, and its final weights."""
    job = submit(name="before")
    folder = job_folder(job).start_attempt(1)
    (folder / "checkpoint" / f"step-{step}").mkdir()
    for name in ("state.safetensors", "state.json"):
        (folder / "checkpoint" / f"step-{step}" / name).write_text(name)
    set_job(job, attempt=1, completed_attempt=1 if final else 0)
    if final:
        (folder / "model" / "train").mkdir(exist_ok=True)
        (folder / "model" / "train" / "model_epoch_final.pth").write_text("weights")
    path = f"attempt-1/checkpoint/step-{step}"
    point = Checkpoint.objects.create(
        job=job, attempt=1, step=step, epoch=0, path=path, size_bytes=1, sha256="", created_at=job.submitted_at
    )
    return Job.objects.get(pk=job.pk), point


@pytest.mark.parametrize(("final", "expected"), [(True, "weights.pth"), (False, "step-7")])
def test_a_job_begins_with_the_weights_of_an_earlier_one(submit: Submit, final: bool, expected: str) -> None:
    before, _ = trained(submit, final=final)
    job = submit(initial_weights=before.pk)
    shutil.rmtree(job_folder(before).path)
    launch = launch_spec(job)
    assert launch.initial_weights is not None
    assert (Path(launch.initial_weights).name, launch.initial_checkpoint) == (expected, None)
    assert Path(launch.initial_weights).exists(), "whatever becomes of the earlier job"
    assert (job.starts_from, job.initial_job) == ("weights", before)


def test_a_script_of_wmla_gets_the_forms_values_and_the_folders_that_it_declares(submit: Submit) -> None:
    before, _ = trained(submit, final=True)
    job = submit(initial_weights=before.pk, parameters={"epochs": 3})
    RegisteredModelVersion.objects.filter(pk=job.model_id).update(
        settings={"optimizer": "Adam", "epochs": 9}, folder_arguments=["train_dir", "weights"]
    )
    job.refresh_from_db()
    launch = launch_spec(job)
    folder = job_folder(job)
    assert launch.settings == {"optimizer": "Adam", "epochs": 3}, "the training's own go before the model's"
    arguments = dict(zip(launch.arguments[::2], launch.arguments[1::2], strict=True))
    assert arguments["--train_dir"] == f"{folder.attempt(job.run.attempt)}/model/train"
    assert [path.name for path in Path(arguments["--weights"]).iterdir()] == ["weights.pth"]


def test_a_job_begins_with_the_weights_of_one_checkpoint(submit: Submit) -> None:
    before, point = trained(submit)
    job = submit(initial_weights={"checkpoint": point.pk})
    launch = launch_spec(job)
    assert launch.initial_weights is not None
    assert (Path(launch.initial_weights).name, launch.initial_checkpoint) == ("step-7", None)
    assert (Path(launch.initial_weights) / "state.safetensors").exists()
    assert (job.starts_from, job.initial_job, job.initial_checkpoint) == ("weights", before, point)


def test_a_job_continues_a_checkpoint_that_stays_for_it(submit: Submit) -> None:
    before, point = trained(submit)
    job = submit(checkpoint=point.pk)
    shutil.rmtree(job_folder(before).path)
    launch = launch_spec(job)
    assert launch.initial_checkpoint is not None
    assert launch.initial_weights is None
    assert sorted(path.name for path in Path(launch.initial_checkpoint).iterdir()) == [
        "state.json",
        "state.safetensors",
    ]


def uploaded(owner: User, name: str, content: bytes) -> Upload:
    upload = uploads.begin(owner, name, len(content))
    uploads.append(upload, 0, io.BytesIO(content))
    return upload


def saved(kind: str) -> bytes:
    weights = {"weight": torch.ones(2, 3)}
    if kind == ".safetensors":
        return save(weights)
    file = io.BytesIO()
    if kind == ".zip":
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("net/model-00001-of-00001.safetensors", save(weights))
        return file.getvalue()
    torch.save(weights, file)
    return file.getvalue()


@pytest.mark.parametrize("suffix", [".pth", ".bin", ".ckpt", ".safetensors", ".zip"])
def test_a_job_begins_with_an_uploaded_file(submit: Submit, alice: User, suffix: str) -> None:
    content = saved(suffix)  # once: an archive has the time in it
    upload = uploaded(alice, f"mine{suffix}", content)
    jobs = [submit(initial_weights={"upload": upload.pk}) for _ in range(2)]
    uploads.discard(upload)
    for job in jobs:
        launch = launch_spec(job)
        assert launch.initial_weights is not None
        assert Path(launch.initial_weights).name == f"weights{'.pth' if suffix in ('.bin', '.ckpt') else suffix}"
        assert Path(launch.initial_weights).read_bytes() == content, "whatever becomes of the upload"
        assert (job.starts_from, job.initial_job, job.initial_file) == ("weights", None, f"mine{suffix}")


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.pth", b"no archive", "a.pth was not written by torch.save"),
        ("a.safetensors", b"\xff" * 20, "a.safetensors is not a valid safetensors file"),
        ("a.safetensors", b"\x02\0\0\0\0\0\0\0[]", "a.safetensors is not a valid safetensors file"),
        ("a.csv", b"1,2", "a.csv is not a file of weights"),
        ("a.zip", b"no archive", "a.zip has no file of weights"),
        ("model-00001-of-00002.safetensors", save({"weight": torch.ones(2)}), "is one of several files"),
    ],
)
def test_a_file_without_weights_is_refused(
    submit: Submit, alice: User, name: str, content: bytes, sentence: str
) -> None:
    upload = uploaded(alice, name, content)
    with pytest.raises(InvalidSubmission, match=sentence):
        submit(initial_weights={"upload": upload.pk})


def test_an_upload_of_somebody_else_or_half_of_one_is_refused(submit: Submit, alice: User, bob: User) -> None:
    theirs, half = uploaded(bob, "a.pth", saved(".pth")), uploads.begin(alice, "b.pth", 9)
    for upload, sentence in ((theirs.pk, "Upload not found"), (half.pk, "0 of 9 bytes"), ("1", "Give the num")):
        with pytest.raises(InvalidSubmission, match=sentence):
            submit(initial_weights={"upload": upload})


def test_a_clone_begins_with_the_same(submit: Submit, alice: User) -> None:
    before, point = trained(submit)
    upload = uploaded(alice, "mine.pth", saved(".pth"))
    jobs = [
        submit(checkpoint=point.pk),
        submit(initial_weights=before.pk),
        submit(initial_weights={"upload": upload.pk}),
    ]
    shutil.rmtree(job_folder(before).path)
    uploads.discard(upload)
    for job in jobs:
        again = actions.clone(job, alice)
        assert [path.name for path in (job_folder(again).path / "initial").iterdir()] == [
            path.name for path in (job_folder(job).path / "initial").iterdir()
        ]
        for field in ("starts_from", "initial_job", "initial_checkpoint", "initial_file"):
            assert getattr(again, field) == getattr(job, field)


def test_what_a_training_cannot_begin_with_is_said(submit: Submit, bob: User) -> None:
    theirs, point = JobFactory(owner=bob), trained(submit)[1]
    bad = trained(submit, step=8)[1]
    Checkpoint.objects.filter(pk=bad.pk).update(problem="its digest does not match")
    nothing_yet = submit()
    for asked, sentence in (
        ({"initial_weights": theirs.pk}, f"Training {theirs.pk} not found among yours"),
        ({"initial_weights": nothing_yet.pk}, "it has neither a result nor a checkpoint"),
        ({"initial_weights": nothing_yet.pk, "checkpoint": point.pk}, "not both"),
        ({"initial_weights": {"checkpoint": 0}}, "Give the number of a checkpoint"),
        ({"initial_weights": {"checkpoint": "7"}}, "Give the number of a checkpoint"),
        (
            {"initial_weights": {"checkpoint": bad.pk + 1}},
            f"Checkpoint {bad.pk + 1} not found among those of your trainings",
        ),
        ({"initial_weights": {"checkpoint": bad.pk}}, "cannot be used [(]its digest does not match[)]"),
        ({"initial_weights": {"job": point.job_id}}, "Give the number of a training, or"),
    ):
        with pytest.raises(InvalidSubmission, match=sentence):
            submit(**asked)


def test_a_link_in_place_of_the_weights_is_not_followed(submit: Submit, tmp_path: Path) -> None:
    before, _ = trained(submit)
    file = job_folder(before).attempt(1) / "model" / "train" / "model_epoch_final.pth"
    (tmp_path / "secret").write_text("secret")
    file.unlink()
    file.symlink_to(tmp_path / "secret")
    job = submit(initial_weights=before.pk)
    assert [path.name for path in (job_folder(job).path / "initial").iterdir()] == ["step-7"], "its checkpoint instead"


@pytest.mark.parametrize("kind", ["weights", "checkpoint"])
def test_a_link_made_on_the_way_after_the_look_is_not_followed(submit: Submit, tmp_path: Path, kind: str) -> None:
    before, point = trained(submit)
    asked = (
        {"weights": before.pk, "checkpoint": None} if kind == "weights" else {"weights": None, "checkpoint": point.pk}
    )
    beginning = find_beginning(Problems(), **asked, user=before.owner, model=before.model)
    assert beginning is not None
    folder = job_folder(before).path / (point.path if kind == "checkpoint" else "attempt-1/model/train")
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "new").mkdir()
    with pytest.raises(InvalidSubmission, match="cannot be linked"):
        bring(beginning, tmp_path / "new")
    assert not [path for path in (tmp_path / "new").rglob("*") if path.is_file()]


def test_how_often_checkpoints_are_written_reaches_the_script(submit: Submit) -> None:
    launch = launch_spec(submit(checkpoint_seconds=5, checkpoints_kept=3))
    assert (launch.checkpoint_seconds, launch.checkpoints_kept) == (5, 3)
    with pytest.raises(InvalidSubmission) as caught:
        submit(checkpoint_seconds=-1, checkpoints_kept=0)
    assert sorted(caught.value.fields) == ["checkpoint_seconds", "checkpoints_kept"]
