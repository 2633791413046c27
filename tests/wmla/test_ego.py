"""Resource groups, consumers and hosts under EGO's base, which are for reading."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.factories import InstanceGroupFactory, ResourceGroupFactory, host_with_slots
from tests.wmla.training import reads, running_job
from workers.models import Host, ResourceGroup

pytestmark = pytest.mark.django_db

BASE = "/platform/rest/ego/v1"


@pytest.fixture
def gpus(alice: User, bob: User) -> ResourceGroup:
    host_with_slots("node1", 4)
    node2 = host_with_slots("node2", 2)
    ResourceGroupFactory(name="ComputeHosts", kind="service", slot_rule="ncpus")
    ResourceGroupFactory(name="Picked", selection="static", slot_rule="1", description="by hand").hosts.add(node2)
    group = ResourceGroupFactory(name="ComputeHostsGPU", slot_rule="ngpus", requirement="ngpus > 0")
    InstanceGroupFactory(name="theirs", resource_group=group).members.add(bob)
    InstanceGroupFactory(name="sig-elastic", resource_group=group)
    return group


def test_resource_groups_with_their_rules(
    alice_client: Client, gpus: ResourceGroup, django_assert_num_queries: Any
) -> None:
    with django_assert_num_queries(6):  # session, user; hosts, instance groups, resource groups and their hosts
        rows = {row["name"]: row for row in alice_client.get(f"{BASE}/resourcegroups").json()}
    assert list(rows) == ["ComputeHosts", "ComputeHostsGPU", "Picked"]
    assert rows["ComputeHostsGPU"] == {
        "name": "ComputeHostsGPU",
        "description": "",
        "type": "Dynamic",
        "slots": "ngpus",
        "requirement": "ngpus > 0",
        "kind": "gpu",
        "hosts": 2,
        "totalslots": 6,
        "instancegroups": ["sig-elastic"],
    }
    assert (rows["Picked"]["type"], rows["Picked"]["totalslots"]) == ("Static (List of Names)", 1)
    assert (rows["ComputeHosts"]["kind"], rows["ComputeHosts"]["totalslots"]) == ("service", 16)


def test_the_members_of_one(alice_client: Client, alice: User, gpus: ResourceGroup) -> None:
    slots = list(Host.objects.get(name="node1").slots.all())
    running_job(alice, gpus.instance_groups.get(name="sig-elastic"), slots[:3])
    found = alice_client.get(f"{BASE}/resourcegroups/ComputeHostsGPU").json()
    assert [(each["name"], each["totalslots"], each["freeslots"]) for each in found["members"]] == [
        ("node1", 4, 1),
        ("node2", 2, 2),
    ]
    assert found["members"][0]["maxmem"] == 16 * 1024
    services = alice_client.get(f"{BASE}/resourcegroups/ComputeHosts").json()
    assert [(each["totalslots"], each["freeslots"]) for each in services["members"]] == [(8, None), (8, None)]
    assert alice_client.get(f"{BASE}/resourcegroups/nonsense").status_code == 404


def test_consumers_are_the_groups_that_one_may_use(alice_client: Client, gpus: ResourceGroup) -> None:
    [found] = alice_client.get(f"{BASE}/consumers").json()
    assert (found["consumer"], found["resourcegroup"], found["ratio"]) == ("/sig-elastic", "ComputeHostsGPU", 1)


def test_hosts_with_what_their_gpus_tell(
    alice_client: Client, gpus: ResourceGroup, django_assert_num_queries: Any
) -> None:
    slots = list(Host.objects.get(name="node1").slots.all())
    reads(slots[0], 87.5, 1024)
    with django_assert_num_queries(5):  # session, user; held slots, hosts, their slots
        rows = alice_client.get(f"{BASE}/hosts").json()
    node1 = next(row for row in rows if row["name"] == "node1")
    assert (node1["state"], node1["type"], node1["ncpus"], node1["ngpus"]) == ("ONLINE", "virtual", 8, 4)
    assert (node1["totalslots"], node1["freeslots"], node1["nprocs"]) == (4, 4, None)
    assert node1["gpus"][0] == {"index": 0, "model": "virtual GPU (CPU)", "gpudevutil": 87.5, "gpumemused": 1024}
    assert node1["gpus"][1]["gpudevutil"] is None


@pytest.mark.parametrize("path", ["resourcegroups", "consumers", "hosts"])
def test_they_are_for_reading(alice_client: Client, path: str) -> None:
    answer = alice_client.post(f"{BASE}/{path}", data={}, content_type="application/json")
    assert answer.status_code in (403, 405)
