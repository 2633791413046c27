"""A script is dropped and trained: taken over as it is, asked about where it must be, cloned with changes."""

import io
import zipfile
from pathlib import Path

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from jobs.control.dispatch import launch_spec
from jobs.models import Job
from models_registry.models import RegisteredModelVersion
from tests.factories import RegisteredModelFactory
from tests.scene import Scene

SCRIPT = b"""
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--hidden", type=int, default=16)
parser.add_argument("--amp", action="store_true")
print(parser.parse_args())
"""
BEGUN = "if __name__ == '__main__':\n    print(1)\n"


def drop(client: Client, name: str, content: bytes, **values: str) -> dict:
    return client.post("/jobs/new/code/", {"file": SimpleUploadedFile(name, content), **values}).json()


def folder(**files: str) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as writer:
        for name, text in files.items():
            writer.writestr(f"repo/{name}.py", text)
    return archive.getvalue()


@pytest.fixture
def plain(alices: Client, training: dict) -> dict:
    """The form for a plain script that was dropped; the size is that of another model, which the page showed before."""
    taken = drop(alices, "plain.py", SCRIPT)
    return {**training, "model": taken["model"], "dataset": "", "max_slots": "8"}


def test_a_plain_script_is_dropped_and_started(alices: Client, plain: dict) -> None:
    assert alices.post("/jobs/new/", plain).status_code == 302
    job = Job.objects.get(name="mine")
    assert (job.dataset, job.max_slots, job.model.engine, job.model.entry_point) == (None, 1, "single", "plain.py")
    assert launch_spec(job).data_dir == ""
    other = Job.objects.exclude(pk=job.pk).filter(owner=job.owner).first()
    compared = f"/jobs/compare/?jobs={job.pk},{other.pk}"
    for address in (f"/jobs/{job.pk}/", "/jobs/", f"/api/v1/jobs/{job.pk}/", compared):
        assert alices.get(address).status_code == 200, address


def test_the_page_proposes_the_size_of_the_script(alices: Client) -> None:
    """All GPUs of the group only for an elastic training."""
    fixed = drop(alices, "fixed.py", b"import lightning as L\nL.Trainer()")
    assert fixed["processes"] == 1
    assert drop(alices, "two.py", b"import lightning as L\nL.Trainer(devices=2)")["processes"] == 2
    assert drop(alices, "elastic.py", b"from tidepool.torch import Session\nSession()")["processes"] is None
    assert alices.get(f"/jobs/new/?model={fixed['model']}").context["form"]["max_slots"].value() == 1


def test_what_was_found_is_said(alices: Client) -> None:
    taken = drop(alices, "plain.py", SCRIPT)
    assert taken["sentence"] == (
        "plain.py is version 1 of your model plain. The script is not elastic: a training is one process on 1 GPU. "
        "The script reads no dataset."
    )
    assert [(field["name"], field["usual"]) for field in taken["parameters"]] == [("hidden", "16"), ("amp", "false")]


def test_the_same_again_is_the_same_and_a_change_the_next_version(alices: Client) -> None:
    first = drop(alices, "plain.py", SCRIPT)["model"]
    assert drop(alices, "plain.py", SCRIPT)["model"] == first
    assert RegisteredModelVersion.objects.filter(model=first).count() == 1
    assert "version 2" in drop(alices, "plain.py", SCRIPT + b"print(2)")["sentence"]


def test_a_name_that_another_has_gets_ones_own(scene: Scene, alices: Client) -> None:
    RegisteredModelFactory(name="plain")
    assert "your model plain-alice." in drop(alices, "plain.py", SCRIPT)["sentence"]


def test_of_several_scripts_one_is_asked_for(alices: Client) -> None:
    repository = folder(main=BEGUN, train=BEGUN, net="x = 1")
    asked = drop(alices, "repo.zip", repository)
    assert asked["scripts"] == ["main.py", "train.py"]
    assert not RegisteredModelVersion.objects.filter(model__name="repo").exists()
    assert (
        "train.py is version 1 of your model repo"
        in drop(alices, "repo.zip", repository, entry_point="train.py")["sentence"]
    )


def test_the_path_of_a_repository_is_taken(home: Path, alices: Client, scene: Scene) -> None:
    repository = home / "models" / "somebodys-repo"
    repository.mkdir()
    (repository / "go.py").write_text("import os\nprint(os.environ['DATA_DIR'], os.environ['LOCAL_RANK'])")
    taken = alices.post("/jobs/new/code/", {"path": "somebodys-repo"}).json()
    assert (taken["name"], taken["engine"], taken["reads_data"]) == ("somebodys-repo", "fixed", True)
    alone = alices.post("/jobs/new/code/", {"path": "somebodys-repo/go.py"}).json()
    assert (alone["name"], alone["engine"]) == ("go", "fixed")


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({}, "Enter either a path on the server or a file to upload."),
        ({"path": "/etc"}, "outside the allowed folders"),
        ({"path": "a\0b"}, "a character that no file name can contain"),
        ({"file": SimpleUploadedFile("notes.odt", b"x")}, "of a kind that is not accepted"),
        ({"file": SimpleUploadedFile("x.zip", b"x")}, "cannot be unpacked"),
    ],
)
def test_what_cannot_be_taken_is_said(alices: Client, scene: Scene, values: dict, sentence: str) -> None:
    answer = alices.post("/jobs/new/code/", values)
    assert answer.status_code == 400
    assert sentence in answer.json()["error"]


def test_a_script_that_reads_data_wants_a_dataset(alices: Client, training: dict) -> None:
    taken = drop(alices, "reader.py", b"import os\nprint(os.environ['DATA_DIR'])")
    page = alices.post("/jobs/new/", {**training, "model": taken["model"], "dataset": ""})
    assert "The script of reader reads a dataset: choose one." in page.content.decode()


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"parameters": "hiden = 8"}, "The script declares no --hiden: did you mean hidden?"),
        ({"parameter.hidden": "many"}, "The parameter hidden must be a number, such as 16."),
        ({"environment": "RANK = 1"}, "RANK is set by Tidepool for each process: remove it."),
        ({"environment": "my name = 1"}, "is not a valid variable name"),
        ({"environment": "WANDB"}, "Line 1 is not a variable: write it as name = value."),
        ({"arguments": "'open"}, "These arguments cannot be parsed"),
    ],
)
def test_a_mistake_is_named_and_everything_given_stays(
    alices: Client, plain: dict, values: dict, sentence: str
) -> None:
    page = alices.post("/jobs/new/", {**plain, "name": "kept as it was", **values})
    form = page.context["form"]
    assert sentence in str(form.errors).replace("&#x27;", "'")
    assert {name: form.data[name] for name in values} == values
    assert f'<option value="{plain["model"]}" selected>' in page.content.decode(), (
        "the files are the model, which stays"
    )
    assert not Job.objects.filter(name="kept as it was").exists()


def test_flags_arguments_and_variables_reach_the_script(alices: Client, plain: dict) -> None:
    odd = {
        "parameter.amp": "true",
        "parameter.hidden": "32",
        "arguments": "a 'b c'",
        "environment": "WANDB_MODE = offline",
    }
    alices.post("/jobs/new/", {**plain, **odd})
    launch = launch_spec(Job.objects.get(name="mine"))
    assert launch.arguments == ["--hidden", "32", "--amp", "a", "b c"]
    assert launch.environment == {"WANDB_MODE": "offline"}


def test_the_values_of_variables_are_shown_nowhere(alices: Client, plain: dict) -> None:
    alices.post("/jobs/new/", {**plain, "environment": "TOKEN = s3cr3t-value"})
    job = Job.objects.get(name="mine")
    addresses = [f"/jobs/{job.pk}/", f"/jobs/new/?clone={job.pk}", f"/api/v1/jobs/{job.pk}/", "/jobs/", "/api/v1/jobs/"]
    pages = {address: alices.get(address).content.decode() for address in addresses}
    assert not [address for address, page in pages.items() if "s3cr3t-value" in page]
    assert "TOKEN" in pages[f"/jobs/{job.pk}/"]
    assert alices.get(f"/api/v1/jobs/{job.pk}/").json()["environment"] == {"TOKEN": "••••••"}


def test_a_clone_opens_the_form_and_takes_changes(alices: Client, plain: dict) -> None:
    odd = {"parameter.hidden": "32", "arguments": "a 'b c'", "environment": "TOKEN = x\nMODE = y", "priority": "1234"}
    alices.post("/jobs/new/", {**plain, **odd})
    job = Job.objects.get(name="mine")
    drop(alices, "plain.py", b"print('the next version')")

    page = alices.get(f"/jobs/new/?clone={job.pk}")
    form = page.context["form"]
    shown = {name: form[name].value() for name in form.fields if form[name].value() not in (None, "")}
    assert shown["name"] == "mine-2"
    assert (shown["priority"], shown["arguments"], shown["clone"]) == (1234, "a 'b c'", job.pk)
    assert form.typed_parameters["values"] == {"hidden": "32"}

    changed = {"name": "again", "parameter.hidden": "64", "environment": "TOKEN = ••••••\nMODE = z"}
    assert alices.post("/jobs/new/", {**shown, "dataset": "", **changed}).status_code == 302
    copy = Job.objects.get(name="again")
    assert (copy.parameters, copy.environment) == ({"hidden": 64}, {"TOKEN": "x", "MODE": "z"})
    assert (copy.model, copy.priority, copy.arguments) == (job.model, 1234, ["a", "b c"])


def test_others_trainings_are_not_cloned(scene: Scene, alices: Client, bobs: Client) -> None:
    assert bobs.get(f"/jobs/new/?clone={scene.first.pk}").status_code == 404
    assert alices.get(f"/jobs/new/?clone={scene.first.pk}").status_code == 200
    for nonsense in ("x", "9" * 40, "-1"):
        assert alices.get(f"/jobs/new/?clone={nonsense}").status_code == 200


def test_every_setting_of_wmla_can_be_changed_on_train(alices: Client, training: dict) -> None:
    taken = drop(alices, "wmla.py", b"import pth_parameter_mgr\nprint(pth_parameter_mgr.getLearningRate())")
    names = {field["name"] for field in taken["parameters"]}
    assert {"learning_rate", "lr_policy", "optimizer", "momentum", "epochs", "batch_size"} <= names
    values = {**training, "model": taken["model"]}
    page = alices.post("/jobs/new/", {**values, "parameter.learning_rate": "-1"}).content.decode()
    assert "Base learning rate must be a number above 0" in page
    alices.post("/jobs/new/", {**values, "parameter.learning_rate": "0.5"})
    launch = launch_spec(Job.objects.get(name="mine"))
    assert launch.settings["learning_rate"] == 0.5
    assert "--learning_rate" not in launch.arguments, "its command line declares no such argument"
