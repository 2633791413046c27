"""Under ASGI, as the product runs: what is refused is refused before a byte of the upload was asked for."""

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlencode

import pytest
from asgiref.sync import sync_to_async

from jobs.models import Job
from tests.factories import PASSWORD, InstanceGroupFactory, ResourceGroupFactory, UserFactory, host_with_slots
from tests.wmla.conftest import ARGS, DLI, model_tar
from tests.wmla.registry.test_absent import UPLOADS

pytestmark = pytest.mark.django_db(transaction=True)

BOUNDARY = b"----boundary"


class Upload:
    """Double of an ASGI server's `receive`; it counts how often it was asked."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.asked = 0

    async def __call__(self) -> dict[str, Any]:
        self.asked += 1
        if self.asked == 1:
            return {"type": "http.request", "body": self.body, "more_body": False}
        return await asyncio.Future()


def form() -> bytes:
    content = model_tar({"main.py": b"x = 1\n"}).read()
    head = b'Content-Disposition: form-data; name="file"; filename="pytorch_edt.modelDir.tar"\r\n\r\n'
    return b"--" + BOUNDARY + b"\r\n" + head + content + b"\r\n--" + BOUNDARY + b"--\r\n"


@pytest.fixture
def post(home: Any) -> Callable[..., Awaitable[tuple[int, bytes, int]]]:
    from webapp.asgi import application

    async def send_it(query: dict[str, str], path: str = "/execs", password: str = PASSWORD) -> tuple[int, bytes, int]:
        """(status, body, how often the upload was asked for)"""
        upload, sent = Upload(form()), list[Any]()
        credentials = base64.b64encode(f"alice:{password}".encode())
        headers = [
            (b"host", b"localhost"),
            (b"authorization", b"Basic " + credentials),
            (b"content-type", b"multipart/form-data; boundary=" + BOUNDARY),
            (b"content-length", str(len(upload.body)).encode()),
        ]
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": f"{DLI}{path}",
            "raw_path": f"{DLI}{path}".encode(),
            "query_string": urlencode(query).encode(),
            "root_path": "",
            "headers": headers,
            "server": ("localhost", 80),
            "client": ("127.0.0.1", 1),
        }

        async def send(message: Any) -> None:
            sent.append(message)

        await application(scope, upload, send)
        starts = [message for message in sent if message["type"] == "http.response.start"]
        assert len(starts) == 1
        return starts[0]["status"], b"".join(message.get("body", b"") for message in sent), upload.asked

    return send_it


@pytest.fixture
def cluster() -> None:
    UserFactory(username="alice")
    host_with_slots("gpu-host-1", 4)
    InstanceGroupFactory(name="sig-elastic", resource_group=ResourceGroupFactory())


@pytest.mark.parametrize("path", ["/execs", "/execs/"])
async def test_a_group_that_is_not_there_costs_no_upload(cluster: None, post: Any, path: str) -> None:
    status, body, asked = await post({"sigName": "dli-edt", "args": ARGS}, path)
    assert (status, asked) == (400, 0)
    assert body.startswith(b"Error 400: Instance group name dli-edt not found.")


async def test_nor_does_a_framework_that_is_not_known_or_a_wrong_password(cluster: None, post: Any) -> None:
    assert (await post({"sigName": "sig-elastic", "args": "--exec-start XGboost"}))[::2] == (400, 0)
    assert (await post({"sigName": "sig-elastic", "args": ARGS}, password="wrong"))[::2] == (401, 0)


@pytest.mark.parametrize("address", UPLOADS)
async def test_nothing_is_uploaded_where_nothing_is_taken(cluster: None, post: Any, address: str) -> None:
    status, body, asked = await post({}, f"/{address}")
    assert (status, asked) == (404, 0)
    assert body.startswith(b"Error 404: ")
    assert (await post({}, f"/{address}", "wrong"))[::2] == (401, 0)


async def test_a_wrong_password_costs_no_upload_of_a_search(cluster: None, post: Any) -> None:
    assert (await post({}, "/hypersearch", "wrong"))[::2] == (401, 0)
    status, body, asked = await post({}, "/hypersearch")
    assert (status, asked > 0, body[:15]) == (400, True, b"Error 400: data")


async def test_nor_of_a_search_algorithm(cluster: None, post: Any) -> None:
    assert (await post({}, "/hypersearch/algorithm/install", "wrong"))[::2] == (401, 0)
    status, body, asked = await post({}, "/hypersearch/algorithm/install")
    assert (status, asked > 0, body[:15]) == (400, True, b"Error 400: data")


@pytest.mark.parametrize("path", ["/models", "/models/resnet/trainings", "/models/resnet/hypersearches"])
async def test_elsewhere_what_is_sent_is_read(cluster: None, post: Any, path: str) -> None:
    assert (await post({}, path))[2] > 0


async def test_what_fits_is_uploaded_and_submitted_once(cluster: None, post: Any, home: Any) -> None:
    (home / "data/mnist").mkdir()
    status, body, asked = await post({"sigName": "sig-elastic", "args": ARGS})
    assert (status, asked > 0) == (200, True), body
    assert await sync_to_async(Job.objects.count)() == 1


async def test_a_body_that_says_it_is_too_large_is_not_read(cluster: None, post: Any, settings: Any) -> None:
    settings.TIDEPOOL_UPLOAD_MAX_BYTES = -(1024**2)
    status, body, asked = await post({"sigName": "sig-elastic", "args": ARGS})
    assert (status, asked) == (400, 0)
    assert b"at most 0" in body
