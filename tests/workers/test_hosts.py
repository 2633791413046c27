"""An administrator drains hosts and takes them back."""

from __future__ import annotations

from importlib import import_module

import pytest
from django.apps import apps

from jobs.actions.ending import requeue_interrupted
from tests.factories import HostFactory, host_with_slots
from tests.jobs.cluster import FakeHost
from webapp.lib.errors import Conflict
from workers.actions import drain_host, resume_host, retire_host
from workers.models import CapacityPoint, Host

pytestmark = pytest.mark.django_db


def _state(host: Host) -> str:
    return Host.objects.get(pk=host.pk).state


def test_draining_and_resuming():
    host = HostFactory()
    drain_host(host.name)
    assert _state(host) == Host.State.DRAINING
    resume_host(host.name)
    assert _state(host) == Host.State.ONLINE


@pytest.mark.parametrize("state", [Host.State.LOST, Host.State.OFFLINE, Host.State.DRAINING])
def test_only_an_online_host_can_be_drained(state):
    host = HostFactory(state=state)
    with pytest.raises(Conflict, match=state.value):
        drain_host(host.name)
    assert _state(host) == state


def test_a_retired_host_is_offline():
    host = HostFactory(state=Host.State.LOST)
    retire_host(host.name)
    assert _state(host) == Host.State.OFFLINE


def _history(name: str) -> list[int]:
    return list(CapacityPoint.objects.filter(host__name=name).values_list("slots", flat=True))


def test_what_the_pool_has_of_a_host_is_written_down_when_it_changes():
    host = FakeHost("gpu-host-9", slots=2)
    host.send()
    host.send()
    assert _history("gpu-host-9") == [2]

    host.slots = 3
    host.send()
    drain_host("gpu-host-9")
    resume_host("gpu-host-9")
    assert _history("gpu-host-9") == [2, 3]

    retire_host("gpu-host-9")
    assert _history("gpu-host-9") == [2, 3, 0]
    host.send()
    assert _history("gpu-host-9") == [2, 3, 0, 3]

    host.send(leaving=True)
    assert _history("gpu-host-9") == [2, 3, 0, 3, 0]


def test_a_stop_of_all_takes_every_host_from_the_pool():
    FakeHost("gpu-host-8").send()
    FakeHost("gpu-host-9").send()

    requeue_interrupted()

    assert _history("gpu-host-8") == _history("gpu-host-9") == [4, 0]


def test_history_begins_with_the_hosts_that_are_there():
    host_with_slots("here", 4)
    Host.objects.filter(name=host_with_slots("gone", 4).name).update(state=Host.State.OFFLINE)
    CapacityPoint.objects.all().delete()

    import_module("workers.migrations.0004_capacity").begin(apps, None)

    assert (_history("here"), _history("gone")) == ([4], [])
