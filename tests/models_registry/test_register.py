"""Models are registered with an entry point that exists; their code is read and never run."""

import io
import os

import pytest
from django.conf import settings

from core.errors import NotAllowed, UserError
from core.file_sources import Source, Upload
from core.folders import folder_facts
from models_registry.actions import ModelRegistration, register, register_script
from models_registry.code_inspection import inspect_code
from models_registry.models import RegisteredModel, RegisteredModelVersion
from models_registry.queries import shown_file
from tests.core.archives import zip_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def folder(home):
    folder = settings.TIDEPOOL_MODEL_ROOTS[0] / "cnn"
    folder.mkdir(exist_ok=True)
    (folder / "main.py").write_text("from fabric_model import FabricModel\n")
    (folder / "net.py").write_text("import torch\n")
    return folder


def _register(user, **changes):
    given = {"name": "cnn", "source": Source(path="cnn"), "entry_point": "main.py", **changes}
    return register(user, ModelRegistration(**given))


def _text(version):
    return shown_file(version.folder, version.entry_point).text


def test_by_path(alice, folder):
    version = _register(alice, parameters={"epochs": 2})
    assert (version.number, version.entry_point, version.engine) == (1, "main.py", "elastic")
    assert version.parameters == {"epochs": 2}
    assert len(version.digest) == 64
    assert _text(version) == "from fabric_model import FabricModel\n"


def test_folders_are_passed_only_where_the_script_declares_them(alice, folder):
    assert _register(alice).folder_arguments == []
    declared = "parser.add_argument('--train_dir')\nparser.add_argument('--weights')\n"
    (folder / "main.py").write_text(f"import pth_parameter_mgr\n{declared}")
    version = _register(alice)
    assert (version.compat, version.folder_arguments) == (["wmla"], ["train_dir", "weights"])


def test_by_the_path_of_one_script(alice, folder):
    version = _register(alice, source=Source(path="cnn/net.py"), entry_point="")
    assert (version.path, version.entry_point) == (str(folder / "net.py"), "net.py")
    assert [path.name for path in version.folder.iterdir()] == ["net.py"]
    uploaded = Source(upload=Upload("net.py", io.BytesIO(b"import torch\n")))
    assert _register(alice, source=uploaded, entry_point="net.py").digest == version.digest


def test_by_upload_of_one_script(alice, home):
    version = _register(alice, source=Source(upload=Upload("train.py", io.BytesIO(b"x = 1"))), entry_point="train.py")
    assert _text(version) == "x = 1"


def test_by_upload_of_an_archive(alice, home):
    archive = zip_of({"cnn/main.py": b"", "cnn/net.py": b""})
    version = _register(alice, source=Source(upload=Upload("cnn.zip", archive)), entry_point="cnn/main.py")
    assert version.entry_point == "cnn/main.py"


def test_an_upload_that_comes_back_after_another_is_stored_once(alice, home):
    def sent(text):
        return Source(upload=Upload("train.py", io.BytesIO(text)))

    first, _, again = (
        register(alice, ModelRegistration("cnn", sent(text), "train.py"), reuse=True)
        for text in (b"x = 1", b"x = 2", b"x = 1")
    )

    assert (again.number, again.copy, again.path) == (3, first.copy, first.path)
    assert len(list((settings.TIDEPOOL_MODEL_ROOTS[0] / "uploads").iterdir())) == 2
    assert _text(again) == "x = 1"
    assert again.model.versions.count() == 3


def test_later_edits_change_no_version(alice, folder):
    version = _register(alice)
    (folder / "main.py").write_text("import something_else\n")
    assert _text(version) == "from fabric_model import FabricModel\n"
    assert _register(alice).digest != version.digest


def test_the_digest_is_that_of_what_is_kept(alice, folder):
    (folder / "__pycache__").mkdir(exist_ok=True)
    (folder / "__pycache__" / "main.pyc").write_bytes(b"1")
    version = _register(alice)
    assert version.digest == folder_facts(version.folder).digest
    (folder / "__pycache__" / "main.pyc").write_bytes(b"22")
    assert _register(alice).digest == version.digest


def test_what_cannot_be_copied_is_named(alice, folder):
    os.mkfifo(folder / "pipe")
    with pytest.raises(UserError, match="cannot be copied"):
        _register(alice)
    assert not list((folder.parent / "uploads").glob("*"))


def test_compat_is_told_from_the_imports(alice, folder):
    assert _register(alice).compat == ["wmla"]
    assert _register(alice, compat=[]).compat == []
    (folder / "main.py").write_text("import torch\n")
    assert _register(alice).compat == []
    (folder / "main.py").write_text("import tf_parameter_mgr\n")
    assert _register(alice).compat == ["wmla"], "so that it is told that this is not here"
    (folder / "main.py").write_text("import adaptdl.torch as adl\nadl.init_process_group('gloo')\n")
    version = _register(alice)
    assert (version.compat, version.engine) == (["adaptdl"], "elastic")


def test_versions_and_owners(alice, bob, carol, folder):
    assert [_register(alice).number, _register(alice).number, _register(carol).number] == [1, 2, 3]
    with pytest.raises(NotAllowed, match="choose another name"):
        _register(bob)
    assert RegisteredModel.objects.get().owner == alice


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": "a\nb"}, "name"),
        ({"engine": "warp"}, "engine"),
        ({"framework": "Caffe"}, "framework"),
        ({"compat": ["spark"]}, "compat"),
        ({"parameters": {"--x": 1}}, "parameters"),
        ({"default_dataset": "x" * 256}, "dataset"),
        ({"default_dataset": "a\0b"}, "dataset"),
        ({"source": Source(path="cnn/notes.txt")}, "path"),
        ({"source": Source(path="cnn/net.py")}, "entry_point"),
        ({"source": Source(path="/etc")}, "path"),
        ({"entry_point": "missing.py"}, "entry_point"),
        ({"entry_point": "."}, "entry_point"),
        ({"entry_point": "../cnn-2/main.py"}, "entry_point"),
        ({"entry_point": "/etc/passwd"}, "entry_point"),
        ({"entry_point": "a\0b"}, "entry_point"),
        ({"entry_point": "escape.py"}, "entry_point"),
    ],
)
def test_what_does_not_fit_leaves_nothing(alice, folder, changes, field):
    other = folder.parent / "cnn-2"
    other.mkdir(exist_ok=True)
    (other / "main.py").write_text("")
    (folder / "notes.txt").write_text("no code")
    (folder / "escape.py").unlink(missing_ok=True)
    (folder / "escape.py").symlink_to("/etc/passwd")
    with pytest.raises(UserError) as caught:
        _register(alice, **changes)
    assert list(caught.value.fields) == [field]
    assert not RegisteredModel.objects.exists()


def test_a_missing_entry_point_is_answered_with_candidates(alice, folder):
    with pytest.raises(UserError, match=r"'train\.py' is not in the model's folder: choose one of main\.py, net\.py"):
        _register(alice, entry_point="train.py")


@pytest.mark.parametrize(
    "source", ["def broken(:\n", "x = 'a\0b'", "(" * 500 + ")" * 500, "\ud800".encode("utf-8", "surrogatepass")]
)
def test_a_script_that_is_no_python_is_registered_with_a_warning(alice, folder, source):
    (folder / "main.py").write_bytes(source if isinstance(source, bytes) else source.encode())
    assert _register(alice).entry_point == "main.py"
    assert "not valid Python" in inspect_code(folder, "main.py").warning


def test_a_script_to_train_that_is_no_python_is_refused(alice, home):
    (home / "models/broken.py").write_text("print(1\n")
    with pytest.raises(UserError, match=r"broken\.py is not valid Python \(line 1: '\(' was never closed\)"):
        register_script(alice, Source(path="broken.py"))
    assert not RegisteredModelVersion.objects.exists()


def test_registering_never_runs_the_code(alice, folder, tmp_path):
    (folder / "main.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    _register(alice)
    assert not (tmp_path / "ran").exists()
