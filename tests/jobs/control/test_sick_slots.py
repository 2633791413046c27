"""Tests of GPUs with faults: they are offered to nobody, trainings leave them live, and a person returns them."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from tidepool.protocol import DeviceReading

from core.errors import Conflict
from jobs.control.snapshots import snapshot
from jobs.models import SlotClaim
from tests.jobs.cluster import Cluster, FakeHost, moment
from tests.jobs.conftest import Submit
from workers.actions import drain_host, remove_host
from workers.models import Host, Slot
from workers.sick_slots import may_withdraw, return_slot

XID = "Xid 79 at 2026-11-29 12:00:00 UTC"
NOW = timezone.now()


@pytest.fixture
def first(cluster: Cluster, given: dict[str, Any]) -> FakeHost:
    return cluster.hosts["gpu-host-1"]


def tell(host: FakeHost, **faults: str) -> None:
    """Have the host report faults; `slot0` is that of slot 0."""
    slots = Slot.objects.filter(host__name=host.name).order_by("index")
    readings = [
        DeviceReading(
            slot.index, slot.device_model, slot.virtual, 0.0, 0, None, fault=faults.get(f"slot{slot.index}", "")
        )
        for slot in slots
    ]
    host.send(at=moment(), devices=readings)


def slot(host: FakeHost, index: int = 0) -> Slot:
    return Slot.objects.select_related("host").get(host__name=host.name, index=index)


def claimable() -> dict[tuple[str, int], bool]:
    return {(view.ref.host, view.ref.index): view.claimable for view in snapshot(timezone.now()).slots}


def test_a_faulty_gpu_is_offered_to_nobody(first: FakeHost) -> None:
    tell(first, slot0=XID)
    assert (slot(first).sick_why, slot(first, 1).sick_since) == (XID, None)
    offered = claimable()
    assert (offered["gpu-host-1", 0], offered["gpu-host-1", 1]) == (False, True)
    newest = Host.objects.get(name="gpu-host-1").capacity_points.order_by("-id").first()
    assert newest is not None
    assert newest.slots == Slot.objects.filter(host__name="gpu-host-1").count() - 1


def test_an_elastic_training_leaves_it_live(cluster: Cluster, first: FakeHost, submit: Submit) -> None:
    job = submit(min_slots=1, max_slots=1)
    cluster.turn(3)
    cluster.train(job)
    [claim] = SlotClaim.objects.open().filter(job=job).select_related("slot__host")
    tell(cluster.hosts[claim.slot.host.name], **{f"slot{claim.slot.index}": XID})
    cluster.cycle()
    job.refresh_from_db()
    assert job.state == "RUNNING"
    assert claim.slot_id not in SlotClaim.objects.kept().filter(job=job).values_list("slot", flat=True)
    assert SlotClaim.objects.kept().filter(job=job).count() == 1


def test_it_stays_sick_until_a_test_has_passed_and_a_person_has_returned_it(first: FakeHost, alice: Any) -> None:
    tell(first, slot0=XID)
    with pytest.raises(Conflict, match="still faulty: Xid 79"):
        return_slot(slot(first), alice)
    tell(first)
    assert slot(first).sick_since is not None
    return_slot(slot(first), alice)
    assert (slot(first).sick_since, slot(first).sick_why) == (None, "")
    assert claimable()["gpu-host-1", 0]
    with pytest.raises(Conflict, match="is not sick"):
        return_slot(slot(first), alice)


def test_faults_on_a_second_host_are_told_and_its_gpus_stay(cluster: Cluster, first: FakeHost) -> None:
    second = cluster.hosts["gpu-host-2"]
    tell(first, slot0=XID)
    tell(second, slot0=XID)
    assert (slot(second).fault, slot(second).sick_since) == (XID, None)
    assert claimable()["gpu-host-2", 0]


def test_a_host_that_was_removed_holds_no_other_back(cluster: Cluster, first: FakeHost, alice: Any) -> None:
    tell(first, slot0=XID)
    drain_host(first.name, alice)
    remove_host(first.name, alice)
    second = cluster.hosts["gpu-host-2"]
    tell(second, slot0=XID)
    assert slot(second).sick_since is not None


def test_a_gpu_that_was_taken_out_holds_no_other_back(cluster: Cluster, first: FakeHost) -> None:
    last = first.slots - 1
    tell(first, **{f"slot{last}": "the driver no longer finds it"})
    assert slot(first, last).sick_since is not None
    first.slots, first.boot = last, "boot-2"  # the machine was started without it
    first.send()
    second = cluster.hosts["gpu-host-2"]
    tell(second, slot0=XID)
    assert slot(second).sick_since is not None


@pytest.mark.parametrize(
    ("minutes_ago", "hosts", "allowed"),
    [(None, 1, True), (5, 100, False), (11, 100, True), (11, 10, False)],
    ids=["the first", "soon after another", "later", "more than a tenth"],
)
def test_the_brake(minutes_ago: int | None, hosts: int, allowed: bool) -> None:
    sick = {} if minutes_ago is None else {2: NOW - timedelta(minutes=minutes_ago)}
    assert may_withdraw(1, sick, hosts, NOW) is allowed


def test_more_gpus_of_a_host_that_has_sick_ones_may_follow() -> None:
    assert may_withdraw(1, {1: NOW}, 10, NOW)
