"""Examples for curl in the documents: each is sent as it stands, with its headers and its body, and taken."""

import base64
import re
import shlex
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone
from markdown_it import MarkdownIt

from accounts.tokens import make_token
from core.time import iso
from jobs.files.job_folder import job_folder
from tests.factories import UserFactory, set_job
from tests.scene import PASSWORD, Scene
from tests.test_architecture import ROOT

pytestmark = pytest.mark.django_db

CODE = "from fabric_model import FabricModel\n"


@dataclass
class Call:
    path: str = ""
    method: str = ""
    user: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    data: str = ""
    form: dict[str, str | SimpleUploadedFile] = field(default_factory=dict)


def examples() -> Iterator[tuple[str, str]]:
    """Name of a document, and an example, which ends where no backslash and no open quote leads to the next line."""
    for document in sorted((ROOT / "docs").rglob("*.md")):
        blocks = [token.content for token in MarkdownIt().parse(document.read_text()) if token.content and token.block]
        for block in blocks:
            for found in re.finditer(r"^curl (?:\\\n|'[^']*'|[^\n'])*", block, re.MULTILINE):
                yield document.stem, found[0]


def parsed(text: str) -> Call:
    """Return the request that curl would send. No example uses other options."""
    call, words = Call(), iter(shlex.split(text.replace("\\\n", " "))[1:])
    for word in words:
        if word == "-X":
            call.method = next(words)
        elif word == "-H":
            name, _, value = next(words).partition(": ")
            call.headers[name] = value
        elif word == "-u":
            call.user = next(words)
        elif word == "-d":
            call.data = next(words)
        elif word == "-F":
            name, _, value = next(words).partition("=")
            call.form[name] = SimpleUploadedFile(value[1:], archive()) if value.startswith("@") else value
        else:
            assert not word.startswith("-"), f"{word} in {text}"
            call.path = urlsplit(word).path
    call.path = call.path[call.path.index("/api/v1/") :]
    call.method = call.method or ("POST" if call.data or call.form else "GET")
    return call


def archive() -> bytes:
    content = BytesIO()
    with zipfile.ZipFile(content, "w") as files:
        files.writestr("main.py", CODE)
    return content.getvalue()


@pytest.fixture
def jobs(scene: Scene) -> dict[str, int]:
    """Makes what the examples speak of, and says which job a document means by 12."""
    for part in ("train", "test"):
        folder = Path(settings.TIDEPOOL_DATA_ROOTS[0], "plants", part)
        folder.mkdir(parents=True)
        (folder / "part.csv").write_text("width,label\n1.5,cat\n2.5,dog\n")
    weights = job_folder(scene.done).attempt(1) / "model" / "train"
    for path, content in ((job_folder(scene.done).code / "main.py", CODE), (weights / "model_epoch_final.pth", "w")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    set_job(scene.done, completed_attempt=1)
    return {"scripts": scene.failed.pk, "models": scene.done.pk}


def sent(call: Call, headers: dict[str, str]) -> int:
    body: str | dict[str, str | SimpleUploadedFile] = call.form or call.data
    media_type = headers.pop("Content-Type", "application/x-www-form-urlencoded")
    how = {} if call.form or call.method == "GET" else {"content_type": media_type}
    answer = getattr(Client(), call.method.lower())(call.path, body or None, headers=headers, **how)
    assert answer.status_code in (200, 201, 202), f"{call.method} {call.path}: {answer.content.decode()[:500]}"
    return int(answer.status_code)


def test_each_is_taken(scene: Scene, jobs: dict[str, int]) -> None:
    admin = UserFactory(username="admin", is_staff=True, is_superuser=True)
    users = {"alice": scene.alice, "admin": admin}
    for user in users.values():
        user.set_password(PASSWORD)
        user.save()
    # When the trainings of the scene were.
    week = [iso(timezone.now() + timedelta(days=days)) for days in (-7, 0)]
    tokens = {name: make_token(user, "curl", None, "full").text for name, user in users.items()}
    taken = 0
    for document, text in examples():
        if "/api/v1/" not in text:
            continue
        call = parsed(text.replace("/jobs/12/", f"/jobs/{jobs.get(document)}/"))
        call.data = call.data.replace("2026-03-01T00:00:00Z", week[0]).replace("2026-03-08T00:00:00Z", week[1])
        if call.user:
            login = base64.b64encode(f"{call.user}:{PASSWORD}".encode()).decode()
            call.headers["Authorization"] = f"Basic {login}"
        else:
            # Examples in docs/user are sent by a data scientist.
            who = "alice" if document in jobs else "admin"
            assert call.headers["Authorization"] == "Bearer $TOKEN"
            call.headers["Authorization"] = f"Bearer {tokens[who]}"
        sent(call, call.headers)
        taken += 1
    assert taken >= 9
