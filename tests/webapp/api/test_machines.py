"""Hosts are removed and restored, resource groups changed and deleted, by REST."""

from typing import Any

import pytest
from rest_framework.test import APIClient

from jobs.models import InstanceGroup
from tests.factories import HostFactory, SlotClaimFactory, host_with_slots
from workers.models import Host, ResourceGroup

GROUP = "/api/v1/resource-groups/ComputeHostsGPU/"
HOST = "/api/v1/hosts/gpu-host-9/"

pytestmark = pytest.mark.django_db


def patched(api: APIClient, **changes: Any) -> Any:
    return api.patch(GROUP, changes, format="json")


def test_staff_removes_a_host_and_restores_it(carol_api: APIClient) -> None:
    HostFactory(name="gpu-host-9", state=Host.State.LOST)
    assert carol_api.delete(HOST).status_code == 204
    assert carol_api.get(HOST).status_code == 404
    assert carol_api.delete(HOST).status_code == 404
    assert carol_api.post(f"{HOST}restore/").json()["state"] == "OFFLINE"
    assert carol_api.post(f"{HOST}restore/").status_code == 404


def test_a_host_on_which_something_runs_stays(carol_api: APIClient) -> None:
    host = host_with_slots("gpu-host-9", 1)
    SlotClaimFactory(slot=host.slots.get())
    answer = carol_api.delete(HOST)
    assert (answer.status_code, answer.json()["code"]) == (409, "in_use")
    assert "drain it first" in answer.json()["error"]


def test_a_host_says_how_it_keeps_trainings_apart(alice_api: APIClient) -> None:
    HostFactory(name="gpu-host-9", isolation="walled", isolation_lacks=["Trainings share a user."])
    host = alice_api.get(HOST).json()
    assert (host["isolation"], host["isolation_lacks"]) == ("walled", ["Trainings share a user."])


@pytest.mark.parametrize("method", ["patch", "delete"])
def test_groups_are_changed_by_staff_only(alice_api: APIClient, group: InstanceGroup, method: str) -> None:
    assert getattr(alice_api, method)(GROUP, {}, format="json").status_code == 403
    assert alice_api.delete("/api/v1/hosts/gpu-host-1/").status_code == 403
    assert ResourceGroup.objects.exists()


def test_what_is_left_out_of_a_change_stays(carol_api: APIClient, group: InstanceGroup) -> None:
    assert patched(carol_api, description="ours", requirement="ngpus > 1").status_code == 200
    changed = patched(carol_api, slot_rule="min(ngpus, 2)").json()
    assert (changed["description"], changed["requirement"]) == ("ours", "ngpus > 1")
    assert changed["slot_rule"] == "min(ngpus, 2)"
    static = patched(carol_api, selection="static", hosts=["gpu-host-1"]).json()
    assert (static["requirement"], static["hosts"]) == ("", ["gpu-host-1"])


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": "other"}, "name"),
        ({"kind": "service"}, "kind"),
        ({"slot_rule": "ngpus *"}, "slot_rule"),
        ({"slot_rule": None}, "slot_rule"),
        ({"requirement": "ngpu > 0"}, "requirement"),
        ({"selection": "static"}, "hosts"),
        ({"selection": "static", "hosts": ["nobody"]}, "hosts"),
        ({"hosts": "gpu-host-1"}, "hosts"),
    ],
)
def test_a_change_that_does_not_fit_is_refused_at_its_field(
    carol_api: APIClient, group: InstanceGroup, changes: dict[str, Any], field: str
) -> None:
    answer = patched(carol_api, **changes)
    assert (answer.status_code, list(answer.json()["fields"])) == (400, [field])


def test_a_group_in_use_is_not_deleted_and_another_is(carol_api: APIClient, group: InstanceGroup) -> None:
    answer = carol_api.delete(GROUP)
    assert answer.status_code == 409
    assert "sig-elastic" in answer.json()["error"]
    assert carol_api.post("/api/v1/resource-groups/", {"name": "spare"}, format="json").status_code == 201
    assert carol_api.delete("/api/v1/resource-groups/spare/").status_code == 204
    assert ResourceGroup.objects.count() == 1
