"""Which slots a resource group offers, and which rules are refused."""

from __future__ import annotations

import pytest

from tests.factories import HostFactory, ResourceGroupFactory, host_with_slots
from webapp.lib.errors import Conflict, UserError
from workers.actions import ResourceGroupSpec, create_resource_group
from workers.models import Host, ResourceGroup
from workers.queries import capacity, offered_slots

pytestmark = pytest.mark.django_db


def test_a_gpu_group_offers_the_gpus_of_every_host():
    host_with_slots("gpu-host-1", 4)
    host_with_slots("gpu-host-2", 2)
    group = create_resource_group(ResourceGroupSpec("gpus"))
    assert offered_slots(group, Host.objects.all()) == {"gpu-host-1": 4, "gpu-host-2": 2}
    assert capacity(group) == 6


def test_a_service_group_offers_more_slots_than_there_are_gpus():
    HostFactory(ncpus=8, ngpus=0)
    group = create_resource_group(ResourceGroupSpec("cpus", "ncpus*2", kind=ResourceGroup.Kind.SERVICE))
    assert capacity(group) == 16


def test_a_static_group_offers_only_its_hosts():
    host_with_slots("gpu-host-1", 4)
    host_with_slots("gpu-host-2", 4)
    group = create_resource_group(
        ResourceGroupSpec("one", selection=ResourceGroup.Selection.STATIC, hosts=["gpu-host-2"])
    )
    assert offered_slots(group, Host.objects.all()) == {"gpu-host-2": 4}


def test_a_host_that_has_left_offers_nothing():
    HostFactory(ngpus=4, state=Host.State.OFFLINE)
    assert capacity(ResourceGroupFactory()) == 0


def test_a_lost_host_still_counts_as_capacity():
    HostFactory(ngpus=4, state=Host.State.LOST)
    assert capacity(ResourceGroupFactory()) == 4


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"slot_rule": "ngpus +"}, "slot_rule"),
        ({"slot_rule": "8"}, "slot_rule"),
        ({"kind": "tpu"}, "kind"),
        ({"selection": "some"}, "selection"),
        ({"selection": "static"}, "hosts"),
        ({"selection": "static", "hosts": ["nobody"]}, "hosts"),
        ({"name": "x" * 65}, "name"),
        ({"name": ""}, "name"),
    ],
)
def test_what_does_not_fit_is_refused_at_its_field(changes, field):
    host_with_slots("gpu-host-1", 4)
    with pytest.raises(UserError) as caught:
        create_resource_group(ResourceGroupSpec(**{"name": "group", **changes}))
    assert list(caught.value.fields) == [field]
    assert not ResourceGroup.objects.exists()


def test_a_name_is_taken_once():
    create_resource_group(ResourceGroupSpec("group"))
    with pytest.raises(Conflict):
        create_resource_group(ResourceGroupSpec("group"))
