"""The code that a job was submitted with, on its page and by REST: text, of its own files, for who may see the job."""

import os
from pathlib import Path

import pytest
from django.test import Client

from jobs.files.job_folder import job_folder
from jobs.models import Job
from models_registry.models import RegisteredModelVersion
from tests.scene import Scene

SECRET = "not for their eyes"


@pytest.fixture
def code(scene: Scene, home: Path) -> Path:
    """Return the code that the finished training was submitted with, and what its script left there."""
    folder = job_folder(scene.done).code
    (folder / "layers").mkdir(parents=True)
    (folder / "main.py").write_text("print('<script>')\n")
    (folder / "layers" / "conv.py").write_text("width = 64\n")
    (folder / "weights.bin").write_bytes(b"\0\1\2")
    (home / "secret").mkdir()
    (home / "secret" / "secret.py").write_text(SECRET)
    (folder / "link.py").symlink_to(home / "secret" / "secret.py")
    (folder / "linked").symlink_to(home / "secret")
    Path(os.fsdecode(bytes(folder) + b"/no-text-\xff.py")).write_text("")
    return folder


def shown(client: Client, job: Job, file: str | None = None) -> str:
    return client.get(f"/jobs/{job.pk}/", {"file": file} if file else {}).content.decode()


def test_its_own_copy_is_shown_as_text(scene: Scene, code: Path, alices: Client) -> None:
    Path(scene.model.path).mkdir(parents=True, exist_ok=True)
    (Path(scene.model.path) / "main.py").write_text("newer = True\n")
    page = shown(alices, scene.done)
    assert "print(&#x27;&lt;script&gt;&#x27;)" in page
    assert "newer = True" not in page
    assert 'href="?file=layers/conv.py#code"' in page.replace("%2F", "/")
    assert "width = 64" in shown(alices, scene.done, "layers/conv.py")
    assert "weights.bin is not a text file (3" in shown(alices, scene.done, "weights.bin")


@pytest.mark.parametrize("file", ["link.py", "linked/secret.py", "../../../secret/secret.py", "nothing.py", "layers"])
def test_nothing_else_can_be_read(scene: Scene, code: Path, alices: Client, file: str) -> None:
    page = shown(alices, scene.done, file)
    assert "File not found" in page
    assert SECRET not in page
    answer = alices.get(f"/api/v1/jobs/{scene.done.pk}/code/", {"file": file})
    assert answer.status_code in {400, 404}


def test_a_long_file_is_shown_in_part(scene: Scene, code: Path, alices: Client) -> None:
    (code / "main.py").write_text("x = 1\n" * 100_000)
    assert "only its beginning is shown" in shown(alices, scene.done)


def test_code_that_is_gone_says_so(scene: Scene, home: Path, alices: Client) -> None:
    assert "The files are no longer on the server." in shown(alices, scene.done).replace("'", "&#x27;")


def test_what_has_changed_since_is_a_link(scene: Scene, code: Path, alices: Client) -> None:
    version = scene.done.model
    assert "The model has no newer version." in shown(alices, scene.done)
    RegisteredModelVersion.objects.create(
        model=version.model, number=9, path=version.path, entry_point="main.py", framework=version.framework
    )
    page = shown(alices, scene.done)
    assert f"/models/{version.model_id}/compare/?old={version.number}&amp;new=9" in page


def test_rest_lists_and_reads(scene: Scene, code: Path, alices: Client, bobs: Client) -> None:
    address = f"/api/v1/jobs/{scene.done.pk}/code/"
    answer = alices.get(address, {"file": "layers/conv.py"}).json()
    assert [file["name"] for file in answer["files"]] == ["layers/conv.py", "main.py", "weights.bin"]
    assert answer["text"] == "width = 64\n"
    assert alices.get(address).json()["text"] is None
    assert alices.get(address, {"file": "weights.bin"}).json()["text"] is None
    assert bobs.get(address).status_code == 404
    assert bobs.get(f"/jobs/{scene.done.pk}/").status_code == 404
