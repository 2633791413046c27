"""Requests made at random from the API's own description, WMLA's addresses included: none is answered with a 5xx."""

from collections.abc import Sequence
from typing import Any

import pytest
import requests
import schemathesis
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import one_of, sampled_from
from schemathesis.generation import GenerationMode

from accounts.tokens import make_token
from tests.scene import Scene, build_scene
from wmla.identifiers import identities

pytestmark = pytest.mark.django_db

#: Requests of each operation.
FEW, MANY = 1, 50
#: Without a broker the site is not well, and says so.
NOT_WELL = 503
SET_BY_CLIENT = frozenset({"content-length", "content-type", "host", "authorization"})


@pytest.fixture
def scene(home: Any) -> Scene:
    return build_scene()


@pytest.fixture
def credentials(scene: Scene) -> dict[str, str]:
    """Credentials of an administrator, to whom most is allowed."""
    carol = User.objects.create_user("carol", is_staff=True)
    return {"Authorization": f"Bearer {make_token(carol, 'any', None).text}"}


def described(credentials: dict[str, str]) -> list[Any]:
    """The operations of the description that the site serves."""
    schema = schemathesis.openapi.from_dict(Client(headers=credentials).get("/api/v1/schema/").json())
    return [operation.ok() for operation in schema.get_all_operations()]


def names_in(scene: Scene, path: str) -> dict[str, Any]:
    """Return existing names, by the parameter of this address: of random ones nearly all lead nowhere."""
    job, number = scene.done, identities().group_id(scene.done.instance_group_id)
    kind = path.removeprefix("/api/v1/").split("/")[0]
    references = {"resource-groups": "ComputeHostsGPU", "instance-groups": "sig-elastic", "hosts": "gpu-host-1"}
    named = {"datasets": "digits", "models": "digits-cnn", "templates": "digits-cnn", "users": "alice", **references}
    rank = job.ranks.first()
    executor = identities().executor_id(job.pk, rank.attempt, rank.member_id, 0) if rank else "0-x"
    return {
        "reference": named.get(kind, "alice"),
        "job": job.pk,
        **dict.fromkeys(("exec_id", "application_id"), f"wmla-{job.pk}"),
        "sig_id": number,
        "executor_id": executor,
        "stream": "stdout",
        "plan": "sig-elastic",
        "dataset": "digits",
        "model": "digits-cnn",
        "template": "digits-cnn",
        "file": "main.py",
        "training": job.name,
        "resource_group": "ComputeHostsGPU",
        "seq": 1,
        "number": 1,
        "index": 0,
    }


def try_all(scene: Scene, credentials: dict[str, str], each: int) -> dict[str, str]:
    """Return answers with a 5xx, by operation. What each operation changes is undone.

    each: how many requests. A single one is what this operation takes, and what the next one does not: to find out how
    to make both takes the longest.
    """
    operations = described(credentials)
    assert {"/api/v1/jobs/", "/platform/rest/deeplearning/v1/execs/"} <= {each.path for each in operations}
    failed: dict[str, str] = {}
    for place, operation in enumerate(operations):
        modes = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
        modes = modes if each > 1 else modes[place % 2 :][:1]
        with transaction.atomic():
            names = names_in(scene, operation.path)
            if found := try_one(operation, names, credentials, each, modes):
                failed[operation.label] = found
            transaction.set_rollback(True)
    return failed


def try_one(
    operation: Any,
    names: dict[str, Any],
    credentials: dict[str, str],
    examples: int,
    modes: Sequence[GenerationMode],
) -> str:
    """The first request that failed, as a command; "": none did."""
    failures: list[str] = []

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(
        case=one_of([operation.as_strategy(generation_mode=mode) for mode in modes]),
        is_there=sampled_from([True, True, True, False]),
    )
    def ask(case: Any, is_there: bool) -> None:
        if is_there and case.path_parameters:
            case.path_parameters = {name: names.get(name, value) for name, value in case.path_parameters.items()}
        status = status_of(case, credentials)
        if status >= 500 and status != NOT_WELL:
            failures.append(f"{status} for {case.as_curl_command()}")

    ask()
    return failures[0] if failures else ""


def status_of(case: Any, credentials: dict[str, str]) -> int:
    """Return the status of the request as `requests` would send it, body and all."""
    wanted = requests.Request(**case.as_transport_kwargs(base_url="http://testserver")).prepare()
    headers = {name: value for name, value in wanted.headers.items() if name.lower() not in SET_BY_CLIENT}
    body = wanted.body.encode() if isinstance(wanted.body, str) else wanted.body or b""
    kind = wanted.headers.get("Content-Type", "")
    client = Client(headers={**headers, **credentials}, raise_request_exception=False)
    response = client.generic(wanted.method, wanted.path_url, body, content_type=kind)
    if response.streaming:
        b"".join(response.streaming_content)  # then it is closed
    return response.status_code


def test_no_request_is_answered_with_a_mistake_of_the_servers(scene: Scene, credentials: dict[str, str]) -> None:
    assert try_all(scene, credentials, FEW) == {}


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_nor_is_any_of_many(scene: Scene, credentials: dict[str, str]) -> None:
    assert try_all(scene, credentials, MANY) == {}
