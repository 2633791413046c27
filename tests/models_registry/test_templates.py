"""Templates keep a copy of code; models are made of them, and what is in use is not deleted."""

import io
from pathlib import Path

import pytest
from django.conf import settings

from core.errors import Conflict, NotAllowed, UserError
from core.file_sources import Source, Upload
from models_registry.actions import (
    ModelRegistration,
    TemplateAddition,
    add_template,
    delete_model,
    delete_template,
    register,
    take_again,
)
from models_registry.models import ModelTemplate, RegisteredModel
from models_registry.queries import changed_files, changed_values, has_changed, line_changes
from tests.factories import JobFactory

pytestmark = pytest.mark.django_db

CODE = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr')\nparser.parse_args()\n"


@pytest.fixture
def folder(home):
    folder = settings.TIDEPOOL_MODEL_ROOTS[0] / "cnn"
    folder.mkdir(exist_ok=True)
    (folder / "main.py").write_text(CODE)
    return folder


@pytest.fixture
def template(alice, folder):
    return add_template(alice, TemplateAddition("cnn", Source(path="cnn")))


def _model(user, source, **changes):
    return register(user, ModelRegistration(**{"name": "mine", "source": source, **changes}))


def test_a_model_of_a_template_shares_its_files(alice, bob, template):
    version = _model(bob, template, settings={"learning_rate": 0.5, "optimizer": "Adam"}, parameters={"depth": 3})
    assert (version.template, version.folder, version.digest) == (template, template.folder, template.digest)
    assert version.settings == {"learning_rate": 0.5, "optimizer": "Adam"}
    assert version.parameters == {"lr": 0.5, "depth": 3}, "the script parses strictly and asks for no optimizer"


def test_a_parameter_that_is_given_wins_over_a_setting(alice, template):
    assert _model(alice, template, settings={"learning_rate": 0.5}, parameters={"lr": 0.1}).parameters == {"lr": 0.1}


def test_taking_the_files_again_leaves_models_as_they_are(alice, folder, template):
    version = _model(alice, template)
    assert not has_changed(template)
    (folder / "main.py").write_text("import torch\n")
    assert has_changed(template)
    again = take_again(template, alice)
    assert (again.folder / "main.py").read_text() == "import torch\n"
    assert (version.folder / "main.py").read_text() == CODE
    assert not has_changed(again)


def test_a_copy_that_nobody_needs_is_removed(alice, folder, template, django_capture_on_commit_callbacks):
    former = template.folder
    take_again(template, alice)
    assert not former.exists()
    version = _model(alice, template)
    with django_capture_on_commit_callbacks(execute=True):
        delete_model(version.model, alice)
    assert template.folder.exists(), "the template still needs it"
    with django_capture_on_commit_callbacks(execute=True):
        delete_template(template, alice)
    assert not template.folder.exists()
    assert (folder / "main.py").exists(), "what the user put there is not ours"


def test_what_is_in_use_is_not_deleted(alice, template):
    version = _model(alice, template)
    with pytest.raises(Conflict) as of_template:
        delete_template(template, alice)
    JobFactory.create_batch(2, model=version)
    with pytest.raises(Conflict) as of_model:
        delete_model(version.model, alice)
    assert (of_template.value.code, of_model.value.code) == ("in_use", "in_use")
    assert ModelTemplate.objects.exists()
    assert RegisteredModel.objects.exists()


def test_only_owner_and_staff_change_a_template(bob, carol, template):
    for act in (take_again, delete_template):
        with pytest.raises(NotAllowed, match="belongs to alice"):
            act(template, bob)
    take_again(template, carol)
    delete_template(template, carol)


def test_only_owner_and_staff_delete_a_model(alice, bob, carol, template):
    model = _model(alice, template).model
    with pytest.raises(NotAllowed, match="belongs to alice"):
        delete_model(model, bob)
    delete_model(model, carol)


@pytest.mark.parametrize(
    ("changes", "field", "sentence"),
    [
        ({"name": "cnn"}, "name", "There is already a template 'cnn'"),
        ({"entry_point": "train.py"}, "entry_point", r"'train\.py' is not in the model's folder: choose one of"),
        ({"source": Source(path="/etc")}, "path", "outside the allowed folders"),
        ({"source": Source()}, "path", "either a path on the server or a file"),
        ({"framework": "Caffe"}, "framework", "The framework must be"),
    ],
)
def test_a_location_that_does_not_fit_adds_nothing(alice, template, changes, field, sentence):
    with pytest.raises(UserError, match=sentence) as caught:
        add_template(alice, TemplateAddition(**{"name": "other", "source": Source(path="cnn"), **changes}))
    assert list(caught.value.fields) == [field]
    assert ModelTemplate.objects.count() == 1
    assert list((settings.TIDEPOOL_MODEL_ROOTS[0] / "uploads").iterdir()) == [template.folder]


def test_an_upload_is_kept_as_it_is(alice, home):
    source = Source(upload=Upload("main.py", io.BytesIO(b"x = 1")))
    template = add_template(alice, TemplateAddition("up", source))
    assert (template.folder / "main.py").read_text() == "x = 1"
    assert not has_changed(template)


def test_what_changed_between_two_versions(alice, folder, template):
    old = _model(alice, template, settings={"learning_rate": 0.5})
    (folder / "main.py").write_text(CODE + "print('done')\n")
    (folder / "net.py").write_text("x = 1\n")
    (folder / "weights.bin").write_bytes(b"\0\1")
    new = _model(alice, take_again(template, alice), settings={"learning_rate": 0.5, "epochs": 3}, engine="single")
    assert [(change.name, change.old, change.new) for change in changed_values(old, new)] == [
        ("Training engine", "Elastic distributed training", "Single node"),
        ("Setting epochs", None, 3),
    ]
    changes = {change.name: change for change in changed_files(old.folder, new.folder)}
    assert {name: change.kind for name, change in changes.items()} == {
        "main.py": "changed",
        "net.py": "added",
        "weights.bin": "added",
    }
    assert [line.text for line in changes["main.py"].lines if line.kind == "added"] == ["print('done')"]
    assert changes["weights.bin"].lines == []
    assert changed_files(old.folder, old.folder) == []


def test_lines_that_look_like_the_head_of_a_diff_are_lines():
    assert [(line.kind, line.text) for line in line_changes("-- x\n", "++ y\n")][1:] == [
        ("removed", "-- x"),
        ("added", "++ y"),
    ]


def test_files_that_would_take_minutes_to_compare_are_only_named(tmp_path: Path) -> None:
    """Compare files of which difflib compares each pair of equal lines, again for each line that it has matched."""
    for version, step in (("old", 7), ("new", 11)):
        (tmp_path / version).mkdir()
        (tmp_path / version / "a.txt").write_text("".join(f"{number * step % 101}\n" for number in range(60_000)))
        (tmp_path / version / "b.py").write_text(CODE.replace("lr", version))
    changes = changed_files(tmp_path / "old", tmp_path / "new")
    assert [(change.name, change.kind, bool(change.lines)) for change in changes] == [
        ("a.txt", "changed", False),
        ("b.py", "changed", True),
    ]
