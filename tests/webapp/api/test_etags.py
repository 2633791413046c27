"""`If-Match`: a change by REST is refused if the values have been changed since they were read."""

from collections.abc import Callable

import pytest
from rest_framework.test import APIClient

from tests.scene import Scene

#: Address, a change, and another one of something else.
Case = tuple[str, dict, dict]
CASES: dict[str, Callable[[Scene], Case]] = {
    "job": lambda scene: (f"/api/v1/jobs/{scene.first.pk}/", {"priority": 6100}, {"max_slots": 5}),
    "instance group": lambda scene: ("/api/v1/instance-groups/sig-elastic/", {"weight": 7}, {"quota": 4}),
    "resource group": lambda _: ("/api/v1/resource-groups/ComputeHostsGPU/", {"slot_rule": "1"}, {"description": "x"}),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, scene: Scene) -> Case:
    return CASES[request.param](scene)


def test_a_change_of_what_was_changed_since_it_was_read_is_refused(case: Case, carol_api: APIClient) -> None:
    address, first, second = case
    read = carol_api.get(address)["ETag"]
    assert carol_api.get(address)["ETag"] == read
    made = carol_api.patch(address, first, format="json", headers={"If-Match": read})
    assert (made.status_code, made["ETag"] != read) == (200, True)

    refused = carol_api.patch(address, second, format="json", headers={"If-Match": read})
    assert (refused.status_code, refused.json()["code"]) == (412, "outdated")
    assert "read it again" in refused.json()["error"]
    now = carol_api.get(address)
    assert now["ETag"] == made["ETag"]
    assert {name: now.json()[name] for name in first} == first

    again = carol_api.patch(address, second, format="json", headers={"If-Match": f'"other", W/{now["ETag"]}'})
    assert again.status_code == 200
    assert {name: again.json()[name] for name in second} == second


@pytest.mark.parametrize("headers", [{}, {"If-Match": "*"}])
def test_a_change_without_an_etag_is_stored_in_any_case(
    case: Case, carol_api: APIClient, headers: dict[str, str]
) -> None:
    address, first, second = case
    carol_api.patch(address, first, format="json")
    assert carol_api.patch(address, second, format="json", headers=headers).status_code == 200


def test_the_description_names_the_header_and_the_refusal(case: Case, carol_api: APIClient) -> None:
    paths = carol_api.get("/api/v1/schema/", {"format": "json"}).json()["paths"]
    for path in ("/api/v1/jobs/{job}/", "/api/v1/instance-groups/{reference}/", "/api/v1/resource-groups/{reference}/"):
        described = paths[path]["patch"]
        assert "If-Match" in {parameter["name"] for parameter in described["parameters"]}
        assert "412" in described["responses"]
        assert "412" not in paths[path]["get"]["responses"]
