"""Submissions as IBM's Python client for WMLA sends them: the part `file` has no file name."""

import io
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import requests
from django.contrib.auth.models import User
from django.test import Client

from jobs.models import InstanceGroup
from tests.wmla.conftest import ARGS, DLI, SCRIPT, Submit, job_behind, model_tar, text_of
from wmla.multipart import NAMELESS, NamedFiles

ADDRESS = f"{DLI}/execs?" + urlencode({"sigName": "sig-elastic", "args": ARGS})
SINGLE = f"{DLI}/execs?" + urlencode(
    {"sigName": "sig-elastic", "args": "--exec-start PyTorch --model-main mnist/fit.py"}
)


@pytest.fixture
def send(alice_client: Client, group: InstanceGroup, data: Any) -> Submit:
    def send(content: bytes, address: str = ADDRESS, **fields: str) -> Any:
        parts: list[tuple[str, Any]] = [("file", (None, content, "application/octet-stream"))]
        parts += [(name, (None, value, "text/plain")) for name, value in fields.items()]
        prepared = requests.Request("POST", "http://localhost", files=parts).prepare()
        assert isinstance(prepared.body, bytes)
        assert b"filename" not in prepared.body
        return alice_client.generic("POST", address, prepared.body, content_type=prepared.headers["Content-Type"])

    return send


def packed(**files: bytes) -> bytes:
    return model_tar({"main.py": SCRIPT.encode(), **files}).read()


@pytest.mark.django_db
class TestSubmission:
    def test_an_archive_is_unpacked(self, send: Submit, alice: User) -> None:
        job = job_behind(send(packed()), alice)
        assert (job.model.model.name, job.model.entry_point) == ("pytorch_edt", "main.py")
        assert Path(job.model.folder, "main.py").read_text() == SCRIPT

    def test_it_may_be_larger_than_a_field(self, send: Submit, alice: User) -> None:
        weights = os.urandom(3 * 1024**2)
        job = job_behind(send(packed(weights=weights)), alice)
        assert Path(job.model.folder, "weights").read_bytes() == weights

    def test_a_script_is_named_by_the_arguments(self, send: Submit, alice: User) -> None:
        job = job_behind(send("print('ü')\n".encode(), SINGLE), alice)
        assert (job.model.model.name, job.model.entry_point) == ("fit", "fit.py")

    def test_data_beside_it_is_read(self, send: Submit, alice: User) -> None:
        args = "--exec-start PyTorch --model-main main.py"
        job = job_behind(send(packed(), f"{DLI}/execs", data=f'{{"args": "{args}"}}'), alice)
        assert (job.model.model.name, job.dialect) == ("model", "cloud-pak")

    def test_an_empty_one_is_refused(self, send: Submit) -> None:
        assert text_of(send(b"")).startswith("Error 400: The request has no model: ")


# --- the stream ---

HEADER = b'Content-Disposition: form-data; name="file"'


def read(body: bytes, size: int) -> bytes:
    stream = NamedFiles(io.BytesIO(body), b"limit")
    return b"".join(iter(lambda: stream.read(size), b""))


@pytest.mark.parametrize("size", [1, 2, 7, 64, 10_000])
def test_only_headers_of_nameless_files_change(size: int) -> None:
    content = b"--limi\r\n" + HEADER + b"\r\n\r\n--\0\xff" * 9
    named = HEADER + b'; filename="train.py"'
    data = b'Content-Disposition: form-data; name="data"'
    parts = [HEADER + b"\r\nContent-Type: a/b", named, data, HEADER.replace(b'"', b"") + b'; filename=""']
    body = b"".join(b"--limit\r\n" + part + b"\r\n\r\n" + content + b"\r\n" for part in parts) + b"--limit--\r\n"
    given = f'; filename="{NAMELESS}"'.encode()
    expected = body.replace(HEADER + b"\r\nContent-Type", HEADER + given + b"\r\nContent-Type")
    expected = expected.replace(b'name=file; filename=""', b'name=file; filename=""' + given)
    assert read(body, size) == expected


@pytest.mark.parametrize(
    "body", [b"", b"--limit", b"--limit\r\n" + HEADER, b"--limit\r\n" + b"x" * 200_000, b"\xff" * 99]
)
def test_what_is_no_multipart_passes_unchanged(body: bytes) -> None:
    assert read(body, 4096) == body
