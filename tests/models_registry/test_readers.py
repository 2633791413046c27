"""Tests of readers of models: lists, choices and references name what one may read; training keeps what one had."""

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from core.file_sources import Source
from core.models import AuditEntry
from core.visibility import Readers
from jobs.actions.submission import check_clone
from jobs.files.job_folder import job_folder
from models_registry.actions import ModelRegistration, TemplateAddition, add_template, register, register_script
from models_registry.models import RegisteredModel, RegisteredModelVersion
from tests.scene import Scene


@pytest.fixture
def kept(scene: Scene, home: Path) -> RegisteredModelVersion:
    folder = home / "models" / "kept"
    folder.mkdir()
    (folder / "main.py").write_text("print(1)\n")
    template = add_template(scene.alice, TemplateAddition("kept-template", Source(path="kept"), readers=Readers.OWNER))
    return register(scene.alice, ModelRegistration("kept-model", template, default_dataset="digits"))


@pytest.mark.parametrize(
    "address",
    [
        "/models/",
        "/models/new/",
        "/models/templates/",
        "/jobs/new/",
        "/jobs/",
        "/datasets/{dataset}/",
        "/api/v1/models/",
        "/api/v1/templates/",
        "/api/v1/search/?q=kept",
        "/platform/rest/deeplearning/v1/models",
        "/platform/rest/deeplearning/v1/modeltemplates",
    ],
)
def test_lists_and_choices_do_not_name_it_to_others(
    kept: RegisteredModelVersion, scene: Scene, alices: Client, bobs: Client, address: str
) -> None:
    address = address.format(dataset=scene.dataset.dataset_id)
    hers, his = (client.get(address).content for client in (alices, bobs))
    assert b"kept-" in hers
    assert b"kept-" not in his


@pytest.mark.parametrize(
    ("address", "body", "field"),
    [
        ("/api/v1/jobs/", {"name": "a", "model": "{}", "instance_group": "sig-elastic"}, "model"),
        ("/api/v1/models/", {"name": "a", "template": "{}"}, "template"),
        ("/platform/rest/deeplearning/v1/models", {"name": "a", "templatename": "{}"}, "templatename"),
    ],
)
def test_it_is_trained_and_copied_by_nobody_else(
    kept: RegisteredModelVersion, bobs: Client, address: str, body: dict[str, Any], field: str
) -> None:
    name = "kept-model" if field == "model" else "kept-template"
    body = {key: value.format(name) for key, value in body.items()}
    kept_answer, unknown = (
        bobs.post(address, {**body, field: value}, content_type="application/json") for value in (name, "no-such")
    )
    assert (kept_answer.status_code, unknown.status_code) == (400, 400)
    assert str(kept_answer.content).replace(name, "no-such") == str(unknown.content)


def test_its_copy_on_the_disk_is_no_way_round(kept: RegisteredModelVersion, bobs: Client) -> None:
    for path in (kept.copy, f"uploads/{Path(kept.copy).name}", f"kept/../uploads/{Path(kept.copy).name}"):
        answer = bobs.post("/api/v1/models/", {"name": "stolen", "path": path}, content_type="application/json")
        assert (answer.status_code, list(answer.json()["fields"])) == (400, ["path"])
    assert bobs.get("/api/v1/folders/?of=models&path=uploads").status_code == 400


def test_what_was_trained_before_stays(scene: Scene, bobs: Client) -> None:
    """With its code, and with clones of it."""
    job, bob = scene.done, User.objects.get(username="bob")
    type(job).objects.filter(pk=job.pk).update(owner=bob, name="bobs")
    job.refresh_from_db()
    job_folder(job).code.mkdir(parents=True)
    (job_folder(job).code / "elastic-main.py").write_text("secret = 1\n")
    model = RegisteredModel.objects.get(pk=scene.model.model_id)
    assert bobs.get(f"/models/{model.pk}/").status_code == 200
    model.readers = Readers.OWNER
    model.save()

    page = bobs.get(f"/jobs/{job.pk}/").content.decode()
    assert bobs.get(f"/models/{model.pk}/").status_code == 404
    assert f'href="/models/{model.pk}/' not in page
    assert bobs.get(f"/api/v1/jobs/{job.pk}/code/?file=elastic-main.py").json()["text"] == "secret = 1\n"
    assert check_clone(job, bob).model == scene.model


def test_a_copy_has_the_readers_of_what_it_was_made_of(kept: RegisteredModelVersion, scene: Scene) -> None:
    assert kept.model.readers == Readers.OWNER
    copy = register(scene.alice, ModelRegistration("copy", kept))
    assert copy.model.readers == Readers.OWNER
    assert register(scene.alice, ModelRegistration("open", kept, readers="everybody")).model.readers == "everybody"
    assert register(scene.alice, ModelRegistration("open", kept)).model.readers == "everybody", "a version changes none"


def test_files_are_for_everybody_unless_they_come_with_a_training(alice: User, home: Path) -> None:
    (home / "models" / "train.py").write_text("print(1)\n")
    (home / "models" / "a").mkdir()
    (home / "models" / "a" / "main.py").write_text("print(1)\n")
    assert register(alice, ModelRegistration("files", Source(path="a"))).model.readers == Readers.EVERYBODY
    first = register_script(alice, Source(path="a"))
    assert first.model.readers == Readers.OWNER
    RegisteredModel.objects.update(readers=Readers.EVERYBODY)
    (home / "models" / "a" / "main.py").write_text("print(2)\n")
    assert register_script(alice, Source(path="a")).model.readers == Readers.EVERYBODY, "its owner has said so"


def test_its_owner_says_who_may_read(kept: RegisteredModelVersion, alices: Client, bobs: Client) -> None:
    address = f"/models/{kept.model_id}/"
    assert bobs.get(address).status_code == 404
    alices.post(f"{address}readers/", {"readers": "everybody"})
    assert bobs.get(address).status_code == 200
    assert b'name="readers"' not in bobs.get(address).content
    entry = AuditEntry.objects.get(kind="model", key=str(kept.model_id))
    assert (entry.before, entry.after) == ({"readers": "owner"}, {"readers": "everybody"})
    answers = [
        alices.patch("/api/v1/models/kept-model/", body, content_type="application/json")
        for body in (
            {"readers": "owner"},
            {"readers": "all"},
            {},
            {"readers": "group", "name": "other"},
        )
    ]
    assert [answer.status_code for answer in answers] == [200, 400, 400, 400]
    assert answers[0].json()["readers"] == "owner"
    assert bobs.get(address).status_code == 404
