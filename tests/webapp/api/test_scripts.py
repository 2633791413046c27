"""Scripts and folders of them are taken over by `POST scripts/`, to train from."""

import io
import zipfile

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from rest_framework.test import APIClient

pytestmark = pytest.mark.django_db

PLAIN = b"print('hello')\n"


def _archive(**files: bytes) -> SimpleUploadedFile:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in files.items():
            archive.writestr(f"{name}.py", text)
    return SimpleUploadedFile("project.zip", content.getvalue())


def test_a_script_becomes_a_model_and_the_same_again_the_same_version(alice_api: APIClient, home: object) -> None:
    answers = [alice_api.post("/api/v1/scripts/", {"file": SimpleUploadedFile("hi.py", PLAIN)}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201]
    made = answers[0].json()
    assert (made["model"], made["version"], made["engine"], made["reads_data"]) == ("hi", 1, "single", False)
    assert answers[1].json() == made


def test_of_several_scripts_one_has_to_be_named(alice_api: APIClient, home: object) -> None:
    refused = alice_api.post("/api/v1/scripts/", {"file": _archive(one=PLAIN, two=PLAIN)})
    assert (refused.status_code, refused.json()["code"]) == (400, "entry_point")
    taken = alice_api.post("/api/v1/scripts/", {"file": _archive(one=PLAIN, two=PLAIN), "entry_point": "two.py"})
    assert (taken.status_code, taken.json()["entry_point"]) == (201, "two.py")


def test_nothing_is_no_script(alice_api: APIClient, home: object) -> None:
    assert alice_api.post("/api/v1/scripts/", {}).status_code == 400


def test_how_it_trains_may_be_said(alice_api: APIClient, home: object) -> None:
    given = {"file": SimpleUploadedFile("hi.py", PLAIN), "engine": "fixed"}
    assert alice_api.post("/api/v1/scripts/", given).json()["engine"] == "fixed"
    refused = alice_api.post("/api/v1/scripts/", {"file": SimpleUploadedFile("hi.py", PLAIN), "engine": "steam"})
    assert (refused.status_code, list(refused.json()["fields"])) == (400, ["engine"])
