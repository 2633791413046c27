"""An administrator drains hosts and takes them back."""

import pytest

from core.errors import Conflict
from core.models import AuditEntry
from jobs.control.job_end import requeue_interrupted
from tests.factories import HostFactory, SlotClaimFactory, host_with_slots
from tests.jobs.cluster import FakeHost
from workers.actions import drain_host, remove_host, restore_host, resume_host, retire_host
from workers.models import CapacityPoint, Host
from workers.queries import find_host, hosts

pytestmark = pytest.mark.django_db


def _state(host: Host) -> str:
    return Host.objects.get(pk=host.pk).state


def test_draining_and_resuming():
    host = HostFactory()
    drain_host(host.name, "carol")
    assert _state(host) == Host.State.DRAINING
    resume_host(host.name, "carol")
    assert _state(host) == Host.State.ONLINE


@pytest.mark.parametrize("state", [Host.State.LOST, Host.State.OFFLINE, Host.State.DRAINING])
def test_only_an_online_host_can_be_drained(state):
    host = HostFactory(state=state)
    with pytest.raises(Conflict, match=state.value):
        drain_host(host.name, "carol")
    assert _state(host) == state


def test_a_retired_host_is_offline():
    host = HostFactory(state=Host.State.LOST)
    retire_host(host.name)
    assert _state(host) == Host.State.OFFLINE


def _audit() -> list[tuple]:
    rows = AuditEntry.objects.order_by("pk")
    return [(row.actor, row.verb, row.name, row.before.get("state"), row.after.get("state")) for row in rows]


def test_what_an_administrator_did_to_a_host_is_written_down():
    host = HostFactory(name="gpu-host-9", state=Host.State.LOST)
    remove_host("gpu-host-9", "carol")
    restore_host("gpu-host-9", "dave")
    Host.objects.filter(pk=host.pk).update(state=Host.State.ONLINE)
    drain_host("gpu-host-9", "carol")
    resume_host("gpu-host-9", "carol")
    with pytest.raises(Conflict):
        resume_host("gpu-host-9", "carol")

    assert _audit() == [
        ("carol", "removed", "gpu-host-9", "LOST", None),
        ("dave", "restored", "gpu-host-9", None, "OFFLINE"),
        ("carol", "drained", "gpu-host-9", "ONLINE", "DRAINING"),
        ("carol", "resumed", "gpu-host-9", "DRAINING", "ONLINE"),
    ]


@pytest.mark.parametrize("state", [Host.State.LOST, Host.State.OFFLINE, Host.State.DRAINING])
def test_a_removed_host_is_in_no_list_until_it_is_restored(state):
    HostFactory(name="gpu-host-9", state=state, boot="boot-1")
    remove_host("gpu-host-9", "carol")
    assert (find_host("gpu-host-9"), hosts().count()) == (None, 0)
    with pytest.raises(Conflict, match="already removed"):
        remove_host("gpu-host-9", "carol")

    restore_host("gpu-host-9", "carol")
    found = find_host("gpu-host-9")
    assert found is not None
    assert found.state == (Host.State.DRAINING if state == Host.State.DRAINING else Host.State.OFFLINE)
    with pytest.raises(Conflict) as refusal:
        restore_host("gpu-host-9", "carol")
    assert refusal.value.code == "stale_host"


@pytest.mark.parametrize("state", list(Host.State))
def test_a_host_whose_gpus_are_held_is_not_removed(state):
    host = host_with_slots("gpu-host-9", 2)
    Host.objects.update(state=state)
    SlotClaimFactory(slot=host.slots.first())
    with pytest.raises(Conflict) as refusal:
        remove_host("gpu-host-9", "carol")
    assert refusal.value.code == "in_use"
    assert find_host("gpu-host-9") is not None


def test_a_host_in_service_is_drained_before_it_is_removed():
    HostFactory(name="gpu-host-9")
    with pytest.raises(Conflict) as refusal:
        remove_host("gpu-host-9", "carol")
    assert refusal.value.code == "in_service"


def test_a_host_that_was_gone_when_it_was_removed_comes_back_with_any_report():
    host = FakeHost("gpu-host-9").enroll()
    host.send()
    Host.objects.update(state=Host.State.LOST)
    remove_host("gpu-host-9", "carol")
    host.send()
    assert [row.state for row in hosts()] == ["ONLINE"]


def test_a_drained_host_comes_back_when_its_executor_is_started_again():
    host = FakeHost("gpu-host-9").enroll()
    host.send()
    drain_host("gpu-host-9", "carol")
    remove_host("gpu-host-9", "carol")
    host.send()
    host.send(leaving=True)
    assert not hosts().exists()
    assert _history("gpu-host-9") == [4, 0]

    host.boot = "boot-2"
    host.send()
    assert [(row.state, row.removed_boot) for row in hosts()] == [("ONLINE", "")]


def test_a_removed_host_that_was_given_a_training_at_the_last_moment_comes_back():
    host = FakeHost("gpu-host-9").enroll()
    host.send()
    drain_host("gpu-host-9", "carol")
    remove_host("gpu-host-9", "carol")
    SlotClaimFactory(slot=Host.objects.get().slots.first())
    host.send()
    assert hosts().exists()


def _history(name: str) -> list[int]:
    return list(CapacityPoint.objects.filter(host__name=name).values_list("slots", flat=True))


def test_what_the_pool_has_of_a_host_is_written_down_when_it_changes():
    host = FakeHost("gpu-host-9", slots=2).enroll()
    host.send()
    host.send()
    assert _history("gpu-host-9") == [2]

    host.slots = 3
    host.send()
    drain_host("gpu-host-9", "carol")
    resume_host("gpu-host-9", "carol")
    assert _history("gpu-host-9") == [2, 3]

    retire_host("gpu-host-9")
    assert _history("gpu-host-9") == [2, 3, 0]
    host.send()
    assert _history("gpu-host-9") == [2, 3, 0, 3]

    host.send(leaving=True)
    assert _history("gpu-host-9") == [2, 3, 0, 3, 0]


def test_a_stop_of_all_takes_every_host_from_the_pool():
    FakeHost("gpu-host-8").enroll().send()
    FakeHost("gpu-host-9").enroll().send()

    requeue_interrupted()

    assert _history("gpu-host-8") == _history("gpu-host-9") == [4, 0]
