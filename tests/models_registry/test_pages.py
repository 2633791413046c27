"""New, Add location, Next, Add: a template and a model of it; clones, versions, and who may do what."""

import io
import zipfile
from pathlib import Path

import pytest
from django.test import Client

from core import uploads
from core.models import Upload
from models_registry.models import ModelTemplate, RegisteredModel, RegisteredModelVersion
from tests.html import html_of
from tests.notices import levels
from tests.scene import Scene

CODE = """import argparse
parser = argparse.ArgumentParser()
parser.add_argument('--lr', default=0.01)
print('<script>')
"""


@pytest.fixture
def code(scene: Scene, home: Path) -> Path:
    folder = home / "models" / "resnet"
    folder.mkdir()
    (folder / "main.py").write_text(CODE)
    (folder / "net.py").write_text("layers = 3\n")
    return folder


@pytest.fixture
def template(code: Path, alices: Client) -> ModelTemplate:
    alices.post(
        "/models/templates/new/",
        {"framework": "PyTorch", "name": "resnet", "path": "resnet", "entry_point": "main.py", "readers": "everybody"},
    )
    return ModelTemplate.objects.get(name="resnet")


@pytest.fixture
def values() -> dict[str, str]:
    return {
        "name": "mine",
        "engine": "elastic",
        "dataset": "digits",
        "readers": "everybody",
        "learning_rate": "0.5",
        "optimizer": "SGD",
    }


def test_from_a_location_to_a_model(code: Path, alices: Client, values: dict[str, str]) -> None:
    location = {
        "framework": "PyTorch",
        "name": "resnet",
        "path": str(code),
        "entry_point": "main.py",
        "readers": "everybody",
    }
    added = alices.post("/models/templates/new/", location, follow=True)
    template = ModelTemplate.objects.get(name="resnet")
    page = added.content.decode()
    assert levels(added) == ["success"]
    assert "PyTorch-resnet" in page
    assert "print(&#x27;&lt;script&gt;&#x27;)" in page, "the code is text"
    assert template.digest in page
    assert "net.py" in page

    chosen = alices.get("/models/new/", {"template": template.pk})
    assert chosen.headers["Location"] == f"/models/new/{template.pk}/"
    form = alices.get(chosen.headers["Location"]).content.decode()
    assert "as --lr." in form
    assert "The script has no such argument." in form

    page = alices.post(f"/models/new/{template.pk}/", values, follow=True).content.decode()
    version = RegisteredModelVersion.objects.get(model__name="mine")
    assert (version.parameters, version.settings) == ({"lr": 0.5}, {"learning_rate": 0.5, "optimizer": "SGD"})
    assert (version.engine, version.default_dataset, version.template) == ("elastic", "digits", template)
    assert "--lr 0.5" in page
    assert "the script has no such argument" in page


def test_a_script_of_wmla_gets_every_setting_and_the_page_says_how(
    code: Path, alices: Client, values: dict[str, str]
) -> None:
    (code / "main.py").write_text("import pth_parameter_mgr\n")
    location = {
        "framework": "PyTorch",
        "name": "resnet",
        "path": str(code),
        "entry_point": "main.py",
        "readers": "everybody",
    }
    alices.post("/models/templates/new/", location)
    address = f"/models/new/{ModelTemplate.objects.get(name='resnet').pk}/"
    form = alices.get(address).content.decode()
    assert "Passed to the script through pth_parameter_mgr." in form
    assert "The script has no such argument." not in form
    page = alices.post(address, values, follow=True).content.decode()
    assert "through <code>pth_parameter_mgr</code>" in page
    assert "the script has no such argument" not in page


def test_the_form_has_the_engines_and_the_policies(template: ModelTemplate, alices: Client) -> None:
    page = alices.get(f"/models/new/{template.pk}/").content.decode()
    for words in ("Elastic distributed training", "Single node", "Distributed, fixed size", "on SIGTERM"):
        assert words in page
    for policy in ("fixed", "step", "multistep", "exponential", "cosineannealing", "reducelronplateau"):
        assert f'<option value="{policy}">' in page
    assert '<option value="digits">' in page, "datasets are proposed"


def test_a_location_by_upload(scene: Scene, alices: Client) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as writer:
        writer.writestr("train.py", CODE)
    archive.seek(0)
    archive.name = "model.zip"
    values = {"framework": "PyTorch", "name": "up", "entry_point": "train.py", "readers": "everybody", "file": archive}
    page = alices.post("/models/templates/new/", values, follow=True).content.decode()
    assert "Uploaded" in page
    assert "Update from folder" not in page


def test_a_location_by_an_upload_in_pieces_that_a_refused_form_keeps(scene: Scene, alices: Client) -> None:
    upload = uploads.begin(scene.alice, "training.py", len(CODE))
    uploads.append(upload, 0, io.BytesIO(CODE.encode()))
    values = {"framework": "PyTorch", "name": "digits-cnn", "readers": "everybody", "upload": upload.pk}

    refused = alices.post("/models/templates/new/", values)
    assert refused.context["form"].errors["name"]
    assert f'name="upload" value="{upload.pk}"' in html_of(refused)
    assert [row["name"] for row in refused.context["upload_field"]["uploads"]] == ["training.py"]

    alices.post("/models/templates/new/", {**values, "name": "up"})
    assert ModelTemplate.objects.get(name="up").entry_point == "training.py"
    assert not Upload.objects.exists()


def test_a_location_names_its_only_script_by_itself(code: Path, alices: Client) -> None:
    (code / "main.py").rename(code / "fit.py")
    (code / "net.py").unlink()
    alices.post(
        "/models/templates/new/",
        {"framework": "PyTorch", "name": "resnet", "path": str(code), "entry_point": "", "readers": "everybody"},
    )
    assert ModelTemplate.objects.get(name="resnet").entry_point == "fit.py"


@pytest.mark.parametrize(
    ("values", "field", "sentence"),
    [
        ({"path": "/etc"}, "path", "outside the allowed folders"),
        ({"path": "nowhere"}, "path", "path does not exist"),
        ({}, "path", "Enter either a path on the server or a file"),
        ({"path": "resnet", "entry_point": "gone.py"}, "entry_point", "&#x27;gone.py&#x27; is not in the model"),
        ({"path": "resnet", "name": "digits-cnn"}, "name", "There is already a template"),
    ],
)
def test_a_location_that_does_not_fit(code: Path, alices: Client, values: dict, field: str, sentence: str) -> None:
    given = {"framework": "PyTorch", "name": "typed", "entry_point": "main.py", "readers": "everybody", **values}
    before = ModelTemplate.objects.count()
    page = alices.post("/models/templates/new/", given).content.decode()
    assert sentence in page
    assert f'id="id_{field}_error"' in page
    assert f'value="{given["name"]}"' in page
    assert ModelTemplate.objects.count() == before


@pytest.mark.parametrize(
    ("changes", "field", "sentence"),
    [
        ({"learning_rate": "fast"}, "learning_rate", "must be a number above 0"),
        ({"epochs": "0"}, "epochs", "must be a whole number from 1"),
        ({"gamma": "0.1"}, "gamma", "applies to the policy step"),
        ({"parameters": "depth"}, "parameters", "Line 1 is not a parameter"),
        ({"optimizer": "Newton"}, "optimizer", "This choice is not offered"),
        ({"name": "a/b"}, "name", "must not contain a slash"),
    ],
)
def test_a_model_that_does_not_fit(
    template: ModelTemplate, alices: Client, values: dict, changes: dict, field: str, sentence: str
) -> None:
    page = alices.post(f"/models/new/{template.pk}/", {**values, **changes}).content.decode()
    assert sentence in page
    assert f'id="id_{field}_error"' in page
    assert 'value="digits"' in page
    assert not RegisteredModel.objects.filter(name="mine").exists()


def test_any_file_is_shown_and_no_other(template: ModelTemplate, alices: Client) -> None:
    address = f"/models/templates/{template.pk}/"
    assert "layers = 3" in alices.get(address, {"file": "net.py"}).content.decode()
    for name in ("../../secret", "/etc/passwd", "gone.py"):
        assert "File not found" in alices.get(address, {"file": name}).content.decode()


def test_a_colleague_clones_what_is_not_theirs(scene: Scene, bobs: Client) -> None:
    address = f"/models/{scene.model.model_id}/"
    form = bobs.get(f"{address}clone/").context["form"]
    assert (form["name"].value(), form["optimizer"].value()) == ("digits-cnn-copy", "Adam")
    assert form["parameters"].value() == "epochs = 20"
    bobs.post(
        f"{address}clone/", {"name": "bobs", "engine": "elastic", "readers": "everybody", "parameters": "epochs = 20"}
    )
    copy = RegisteredModel.objects.get(name="bobs")
    assert (copy.owner.username, copy.versions.get().template) == ("bob", scene.model.template)


def test_a_colleague_changes_and_deletes_nothing(scene: Scene, bobs: Client, template: ModelTemplate) -> None:
    model = f"/models/{scene.model.model_id}/"
    page = bobs.get(model).content.decode()
    assert "New version" not in page
    assert "delete-dialog" not in page
    posted = {
        f"{model}change/": "belongs to alice: clone it",
        f"{model}delete/": "belongs to alice: ask the owner",
        f"/models/templates/{template.pk}/delete/": "belongs to alice: ask the owner",
        f"/models/templates/{template.pk}/take-again/": "belongs to alice: ask the owner",
    }
    for address, sentence in posted.items():
        assert sentence in bobs.post(address, follow=True).content.decode()
    assert RegisteredModel.objects.filter(pk=scene.model.model_id).exists()
    assert ModelTemplate.objects.filter(pk=template.pk).exists()
    assert scene.model.model.versions.latest("number") == scene.model


def test_a_new_version_and_what_changed(
    template: ModelTemplate, code: Path, alices: Client, carols: Client, values: dict[str, str]
) -> None:
    alices.post(f"/models/new/{template.pk}/", values)
    model = RegisteredModel.objects.get(name="mine")
    (code / "main.py").write_text(CODE.replace("0.01", "0.02"))
    assert "have changed since they were copied" in alices.get(f"/models/templates/{template.pk}/").content.decode()
    alices.post(f"/models/templates/{template.pk}/take-again/")

    given = {**values, "name": "other", "learning_rate": "0.25", "code": str(template.pk)}
    carols.post(f"/models/{model.pk}/change/", given)
    assert [each.settings["learning_rate"] for each in model.versions.order_by("number")] == [0.5, 0.25]
    assert not RegisteredModel.objects.filter(name="other").exists(), "the name stays"
    page = alices.get(f"/models/{model.pk}/compare/").content.decode()
    assert "Setting learning_rate" in page
    assert "default=0.02" in page
    kept = alices.get(f"/models/{model.pk}/", {"version": "1"}).content.decode()
    assert "default=0.01" in kept


def test_what_trainings_used_stays(scene: Scene, alices: Client) -> None:
    assert levels(alices.post(f"/models/{scene.model.model_id}/delete/", follow=True)) == ["error"]
    assert levels(alices.post(f"/models/templates/{scene.model.template_id}/delete/", follow=True)) == ["error"]
    assert RegisteredModel.objects.filter(pk=scene.model.model_id).exists()
    assert ModelTemplate.objects.filter(pk=scene.model.template_id).exists()


def test_an_unused_model_and_its_template_are_deleted(
    template: ModelTemplate, alices: Client, values: dict[str, str]
) -> None:
    alices.post(f"/models/new/{template.pk}/", values)
    model = RegisteredModel.objects.get(name="mine")
    assert "has been deleted" in alices.post(f"/models/{model.pk}/delete/", follow=True).content.decode()
    assert "has been deleted" in alices.post(f"/models/templates/{template.pk}/delete/", follow=True).content.decode()


@pytest.mark.parametrize("query", ["old=1&new=99", "old=x", "new=-1", "old=9999999999999999999999"])
def test_versions_that_are_not_there_are_not_compared(scene: Scene, alices: Client, query: str) -> None:
    assert alices.get(f"/models/{scene.model.model_id}/compare/?{query}").status_code == 200
