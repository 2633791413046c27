"""Check, row by row, that what WMLA has and is not here is refused with what there is instead.

No more is looked at than the address: uploads are neither read nor kept (tests/wmla/test_preflight.py asks so by ASGI),
and no body makes it a fault of the server.
"""

from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.test import APIClient

from tests.factories import RegisteredModelVersionFactory
from tests.wmla.registry.deep_learning import BASE, ask, refusal
from wmla.service_info import FRAMEWORKS

SERVING = "Trained models are not served here: download one with GET /models/<model>/trainings"

#: Address -> methods of its row.
SERVICES = {
    "inferences": "POST",
    "inferences?modelname=resnet&flag=false": "GET",
    "inferences/p1": "GET DELETE",
    "inferences/p1/predicts": "GET",
    "inferences/p1/stop": "PUT",
    "inferences/startpredict": "POST",
    "edimodels": "GET POST",
    "edimodels/new": "POST",
    "edimodels/m": "GET PUT DELETE",
    "edimodels/m/appprofile": "GET PUT",
    "edimodels/m/inference": "POST",
    "edimodels/m/instance": "GET",
    "edimodels/m/operation/start": "PUT",
    "edimodels/m/operation/stop": "PUT",
    "edimodels/m/readme": "GET",
    "edimodels/m/streaming": "POST",
}
#: Unsupported addresses of rows that Tidepool has otherwise.
SINGLE = {
    "datasets/cifar10/csvs?type=training&start=0&length=10": ("GET", "not listed here: its page shows examples"),
    "datasets/cifar10/objectimages?type=test": ("GET", "not listed here: its page shows examples"),
    "models/files/main.py": ("GET", "use GET /models/<model>/files/<file>"),
    "modeltemplates/files/net%2Flayers.py": ("GET", "GET /modeltemplates/<template>/files/<file>"),
    "models/weightfile": ("POST", "upload them on the page Train"),
}
ROWS = [
    *((address, method, SERVING) for address, methods in SERVICES.items() for method in methods.split()),
    *((address, method, sentence) for address, (method, sentence) in SINGLE.items()),
]
#: Addresses to which clients of WMLA send files.
UPLOADS = (
    "inferences/startpredict",
    "edimodels/new",
    "edimodels/m/inference",
    "models/weightfile",
)


@pytest.mark.parametrize(("address", "method", "sentence"), ROWS)
def test_each_row_says_what_there_is_instead(alice_api: APIClient, address: str, method: str, sentence: str) -> None:
    assert sentence in refusal(ask(alice_api, method, address), 404)
    path, _, query = address.partition("?")
    assert sentence in refusal(ask(alice_api, method, f"{path}/?{query}"), 404)


@pytest.mark.parametrize("address", UPLOADS)
@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("multipart/form-data", b"--x"),
        ("multipart/form-data; boundary=x", b"\xff"),
        ("application/json", b"{"),
        ("application/json", b"[" * 100_000),
        ("application/x-www-form-urlencoded", b"a=1&" * 5000),
        ("x/y", b"\0"),
        ("", b""),
    ],
)
def test_no_body_makes_it_a_fault_of_the_server(alice_client: Client, address: str, kind: str, body: bytes) -> None:
    answer: Any = alice_client.generic("POST", BASE + address, body, content_type=kind)
    refusal(answer, 404)


class Unread:
    """An upload that must not be asked for."""

    def read(self, size: int = -1) -> bytes:
        raise AssertionError("the upload was read")

    readline = read


def post_unread(client: Client, address: str) -> Any:
    # The client sets these only for a body of its own.
    headers = {"CONTENT_TYPE": "multipart/form-data; boundary=x", "CONTENT_LENGTH": "1000000"}
    return client.generic("POST", BASE + address, **headers, **{"wsgi.input": Unread()})  # type: ignore[arg-type]


@pytest.mark.parametrize("address", UPLOADS)
def test_an_upload_that_is_refused_is_not_read(alice_client: Client, address: str) -> None:
    refusal(post_unread(alice_client, address), 404)


def test_an_upload_that_is_accepted_is_read(alice_client: Client) -> None:
    """Prove that the test above would notice a read."""
    with pytest.raises(AssertionError, match="the upload was read"):
        post_unread(alice_client, "execs")


@pytest.mark.parametrize("name", ["weightfile", "files"])
def test_a_model_of_such_a_name_is_there_all_the_same(alice_api: APIClient, alice: User, home: Path, name: str) -> None:
    RegisteredModelVersionFactory(model__name=name, model__owner=alice)
    assert ask(alice_api, "GET", f"models/{name}").json()["name"] == name
    assert ask(alice_api, "GET", f"models/{name}/trainingnames").json() == []
    assert ask(alice_api, "DELETE", f"models/{name}").status_code == 204


def test_files_of_a_model_are_not_written_one_by_one(alice_api: APIClient, model: Any) -> None:
    sentence = refusal(ask(alice_api, "PUT", "models/resnet/files", {"name": "main.py", "content": "x = 2\n"}), 400)
    assert "change them in the template's folder, read them with PUT /modeltemplates/<template>" in sentence
    refusal(ask(alice_api, "PUT", "models/none/files"), 404)


def test_the_guide_names_each_of_them() -> None:
    guide = (Path(settings.BASE_DIR) / "docs/user/coming-from-wmla.md").read_text()
    told = guide[guide.index("## What is not supported\n") :]
    for name in (
        "`hypersearch/algorithm/install`",
        "`inferences`",
        "`edimodels`",
        "`csvs`",
        "`objectimages`",
        "`POST models/weightfile`",
    ):
        assert name in told
    assert all(f"`{framework.name}`" in told for framework in FRAMEWORKS)
