"""An administrator drains hosts and takes them back."""

from __future__ import annotations

import pytest

from tests.factories import HostFactory
from webapp.lib.errors import Conflict
from workers.actions import drain_host, resume_host, retire_host
from workers.models import Host

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
