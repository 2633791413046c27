"""Tests of the slots that a resource group offers, and of refused rules."""

import pytest

from core.errors import Conflict, UserError
from core.models import AuditEntry
from tests.factories import HostFactory, InstanceGroupFactory, ResourceGroupFactory, host_with_slots
from workers.actions import (
    ResourceGroupSpec,
    change_resource_group,
    create_resource_group,
    delete_resource_group,
    spec_of,
)
from workers.group_rules import Offer, offer_of
from workers.models import Host, ResourceGroup
from workers.queries import capacity
from workers.slot_formula import Formula

pytestmark = pytest.mark.django_db


def test_a_gpu_group_offers_the_gpus_of_every_host():
    host_with_slots("gpu-host-1", 4)
    host_with_slots("gpu-host-2", 2)
    group = create_resource_group(ResourceGroupSpec("gpus"), "carol")
    assert offer_of(group).slots(Host.objects.all()) == {"gpu-host-1": 4, "gpu-host-2": 2}
    assert capacity(group) == 6


def test_a_service_group_offers_more_slots_than_there_are_gpus():
    HostFactory(ncpus=8, ngpus=0)
    group = create_resource_group(ResourceGroupSpec("cpus", "ncpus*2", kind=ResourceGroup.Kind.SERVICE), "carol")
    assert capacity(group) == 16


def test_a_static_group_offers_only_its_hosts():
    host_with_slots("gpu-host-1", 4)
    host_with_slots("gpu-host-2", 4)
    group = create_resource_group(
        ResourceGroupSpec("one", selection=ResourceGroup.Selection.STATIC, hosts=["gpu-host-2"]), "carol"
    )
    assert offer_of(group).slots(Host.objects.all()) == {"gpu-host-2": 4}


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
        ({"slot_rule": "ngpus / (ncpus - 8)"}, "slot_rule"),
        ({"slot_rule": "nthreads"}, "slot_rule"),
        ({"requirement": "ngpus >"}, "requirement"),
        ({"description": "x" * 201}, "description"),
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
        create_resource_group(ResourceGroupSpec(**{"name": "group", **changes}), "carol")
    assert list(caught.value.fields) == [field]
    assert not ResourceGroup.objects.exists()


def test_a_name_is_taken_once():
    create_resource_group(ResourceGroupSpec("group"), "carol")
    with pytest.raises(Conflict):
        create_resource_group(ResourceGroupSpec("group"), "carol")


def test_a_requirement_selects_hosts_by_their_attributes():
    for name, ngpus in (("gpu-host-1", 4), ("gpu-host-2", 2), ("cpu-host", 0)):
        HostFactory(name=name, ngpus=ngpus)
    group = create_resource_group(ResourceGroupSpec("gpus", requirement="ngpus > 0 and ngpus < 4"), "carol")
    assert offer_of(group).slots(Host.objects.all()) == {"gpu-host-2": 2}


def test_a_host_that_does_not_report_what_is_required_is_no_member():
    HostFactory(name="old")
    HostFactory(name="new", nthreads=2)
    group = create_resource_group(ResourceGroupSpec("gpus", requirement="nthreads >= 2"), "carol")
    assert offer_of(group).slots(Host.objects.all()) == {"new": 4}


def test_more_slots_than_gpus_are_refused_on_members_only():
    host_with_slots("gpu-host-1", 4)
    host_with_slots("gpu-host-2", 2)
    with pytest.raises(UserError, match="gives 4 slots on gpu-host-2, which has 2 GPUs"):
        create_resource_group(ResourceGroupSpec("four", "4"), "carol")
    group = create_resource_group(ResourceGroupSpec("four", "4", requirement="ngpus >= 4"), "carol")
    assert capacity(group) == 4


def test_a_removed_host_does_not_stand_in_the_way():
    HostFactory(name="gone", ngpus=1, state=Host.State.OFFLINE, removed_at="2026-01-01T00:00Z")
    host_with_slots("gpu-host-1", 4)
    assert capacity(create_resource_group(ResourceGroupSpec("four", "4"), "carol")) == 4


def test_a_group_is_changed_and_changed_back():
    host_with_slots("gpu-host-1", 4)
    host_with_slots("gpu-host-2", 4)
    group = create_resource_group(ResourceGroupSpec("gpus"), "carol")
    wanted = ResourceGroupSpec("ignored", "2", selection="static", requirement="ignored", hosts=["gpu-host-2"])
    before = change_resource_group(group, wanted, "carol")
    after = spec_of(ResourceGroup.objects.get())
    assert after == ResourceGroupSpec("gpus", "2", selection="static", hosts=["gpu-host-2"])

    change_resource_group(group, before, "carol", expected=after)
    assert spec_of(ResourceGroup.objects.get()) == before == ResourceGroupSpec("gpus")
    told = AuditEntry.objects.filter(verb="changed").order_by("pk").first()
    assert told is not None
    assert (told.before["slot_rule"], told.after["slot_rule"], "description" in told.after) == ("ngpus", "2", False)


def test_what_somebody_else_changed_since_is_not_undone():
    host_with_slots("gpu-host-1", 4)
    group = create_resource_group(ResourceGroupSpec("gpus"), "carol")
    before = change_resource_group(group, ResourceGroupSpec("gpus", "2"), "carol")
    change_resource_group(group, ResourceGroupSpec("gpus", "3"), "dave")
    with pytest.raises(Conflict) as refusal:
        change_resource_group(group, before, "carol", expected=ResourceGroupSpec("gpus", "2"))
    assert refusal.value.code == "stale_group"
    assert ResourceGroup.objects.get().slot_rule == "3"


def test_a_group_in_use_is_not_deleted():
    group = InstanceGroupFactory(name="sig-elastic", resource_group__name="gpus").resource_group
    with pytest.raises(Conflict) as refusal:
        delete_resource_group(group, "carol")
    assert refusal.value.code == "in_use"
    assert ResourceGroup.objects.exists()


def test_a_deleted_group_can_be_made_again_from_what_it_was():
    host_with_slots("gpu-host-1", 4)
    spec = ResourceGroupSpec("gpus", selection="static", hosts=["gpu-host-1"], description="ours")
    before = delete_resource_group(create_resource_group(spec, "carol"), "carol")
    assert not ResourceGroup.objects.exists()
    assert spec_of(create_resource_group(before, "carol")) == spec
    assert list(AuditEntry.objects.values_list("verb", flat=True).order_by("pk")) == ["created", "deleted", "created"]


def test_hosts_that_are_alike_are_computed_once(monkeypatch):
    asked = []
    compute = Formula.slots
    monkeypatch.setattr(Formula, "slots", lambda formula, host: asked.append(host) or compute(formula, host))
    hosts = [Host(name=f"gpu-host-{number}", ncpus=8, ngpus=number % 2, state="ONLINE") for number in range(1000)]
    assert sum(Offer("min(ngpus, 4)").slots(hosts).values()) == 500
    assert len(asked) == 2
