"""Templates and models by REST: all that their pages can do."""

import pytest

from models_registry.models import ModelTemplate, RegisteredModel

pytestmark = pytest.mark.django_db

CODE = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--batch-size')\n"


@pytest.fixture
def template(home, alice_api):
    folder = home / "models" / "cnn"
    folder.mkdir()
    (folder / "main.py").write_text(CODE)
    answer = alice_api.post("/api/v1/templates/", {"name": "cnn", "path": "cnn"}, format="json")
    assert answer.status_code == 201
    return answer.json()


@pytest.fixture
def model(template, alice_api):
    body = {"name": "mine", "template": "cnn", "settings": {"batch_size": 8, "optimizer": "Adam"}}
    answer = alice_api.post("/api/v1/models/", body, format="json")
    assert answer.status_code == 201
    return answer.json()


def test_a_template_is_listed_read_and_taken_again(template, home, alice_api, bob_api):
    assert (template["entry_point"], template["used"], len(template["digest"])) == ("main.py", 0, 64)
    files = bob_api.get("/api/v1/templates/cnn/files/", {"file": "main.py"}).json()
    assert files == {"files": [{"name": "main.py", "size_bytes": len(CODE)}], "text": CODE}
    (home / "models/cnn/main.py").write_text("x = 1\n")
    assert bob_api.post("/api/v1/templates/cnn/take-again/").status_code == 403
    again = alice_api.post("/api/v1/templates/cnn/take-again/").json()
    assert again["digest"] != template["digest"]


def test_a_model_of_a_template(model):
    latest = model["latest"]
    assert (latest["template"], latest["parameters"]) == ("cnn", {"batch-size": 8})
    assert latest["settings"] == {"optimizer": "Adam", "batch_size": 8}


def test_the_engine_is_read_from_the_code_unless_it_is_said(template, alice_api):
    plain = alice_api.post("/api/v1/models/", {"name": "plain", "template": "cnn"}, format="json").json()
    assert plain["latest"]["engine"] == "single"
    said = alice_api.post("/api/v1/models/", {"name": "said", "template": "cnn", "engine": "fixed"}, format="json")
    assert said.json()["latest"]["engine"] == "fixed"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"template": "gone"}, "template"),
        ({"template": "cnn", "path": "cnn"}, "template"),
        ({"template": "cnn", "entry_point": "main.py"}, "template"),
        ({"template": "cnn", "settings": {"batch_size": "many"}}, "batch_size"),
        ({"template": "cnn", "settings": []}, "settings"),
        ({}, "path"),
    ],
)
def test_what_does_not_fit_is_said_at_its_field(template, alice_api, body, field):
    answer = alice_api.post("/api/v1/models/", {"name": "mine", **body}, format="json")
    assert (answer.status_code, list(answer.json()["fields"])) == (400, [field])
    assert not RegisteredModel.objects.exists()


def test_versions_files_and_changes(model, alice_api):
    body = {"name": "mine", "template": "cnn", "settings": {"batch_size": 16}}
    assert alice_api.post("/api/v1/models/", body, format="json").json()["latest"]["number"] == 2
    changes = alice_api.get("/api/v1/models/mine/changes/").json()
    assert (changes["old"], changes["new"], changes["files"]) == (1, 2, [])
    assert {change["name"]: (change["old"], change["new"]) for change in changes["values"]} == {
        "Setting batch_size": (8, 16),
        "Setting optimizer": ("Adam", None),
        "Parameter batch-size": (8, 16),
    }
    assert alice_api.get("/api/v1/models/mine/files/?version=1&file=main.py").json()["text"] == CODE
    for query in ("changes/?old=7", "files/?version=7", "files/?file=gone.py"):
        assert alice_api.get(f"/api/v1/models/mine/{query}").status_code == 404


def test_a_colleague_clones_and_deletes_only_the_clone(model, alice_api, bob_api):
    clone = bob_api.post("/api/v1/models/mine/clone/", {"name": "bobs"}, format="json")
    assert (clone.status_code, clone.json()["owner"], clone.json()["latest"]["template"]) == (201, "bob", "cnn")
    assert bob_api.delete("/api/v1/models/mine/").status_code == 403
    assert bob_api.delete("/api/v1/templates/cnn/").status_code == 403
    assert bob_api.delete("/api/v1/models/bobs/").status_code == 204
    assert alice_api.delete("/api/v1/templates/cnn/").status_code == 409
    assert alice_api.delete("/api/v1/models/mine/").status_code == 204
    assert alice_api.delete("/api/v1/templates/cnn/").status_code == 204
    assert not ModelTemplate.objects.exists()
