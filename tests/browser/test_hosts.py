"""The page of the hosts moves with what hosts report."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect
from tidepool.protocol import DeviceReading, HostFacts, Report

from jobs.actions.hosts import record_host
from tests.scene import Scene
from workers.actions import drain_host, retire_host
from workers.models import Host

BLOCKED = "window.WebSocket = class { constructor() { throw new Error('blocked'); } };"


@pytest.fixture(autouse=True)
def nothing_to_complain(complaints: list[str]) -> object:
    yield
    assert complaints == []


def report(name: str, slots: int = 4, busy: float = 41.0, *, virtual: bool = True, after_seconds: int = 0) -> None:
    """What the executor of a host says."""
    now = timezone.now() + timedelta(seconds=after_seconds)
    model = "virtual GPU (CPU)" if virtual else "NVIDIA H200"
    devices = [
        DeviceReading(
            slot=slot,
            model=model,
            uuid=None,
            virtual=virtual,
            utilisation_percent=busy,
            memory_used_bytes=3 * 1024**3,
            memory_total_bytes=None if virtual else 139 * 1024**3,
            temperature_celsius=None if virtual else 52.0,
            power_watts=None if virtual else 310.0,
        )
        for slot in range(slots)
    ]
    known = Host.objects.filter(name=name).first()
    record_host(
        Report(
            host=name,
            boot="boot-1",
            at=now.timestamp(),
            applied_revision=known.wish_revision if known else 0,
            facts=HostFacts(address="10.0.0.9", ncpus=8, ngpus=slots, memory_bytes=64 * 1024**3, virtual=virtual),
            devices=devices,
            ranks=[],
            entries=[],
        ),
        now,
    )


@pytest.mark.parametrize("way", ["websocket", "polling"])
def test_readings_and_states_appear_by_themselves(page: Page, scene: Scene, way: str) -> None:
    report("gpu-host-1", busy=12.0)
    if way == "polling":
        page.add_init_script(BLOCKED)
    page.goto("/hosts/")
    status = "connected" if way == "websocket" else "polling"
    expect(page.locator("#live-dot")).to_have_attribute("data-status", status)
    first = page.locator("tr[data-slot='gpu-host-1:0']")
    expect(first.locator("[data-field=utilisation]")).to_have_text("12 %")

    report("gpu-host-1", busy=87.4, after_seconds=1)

    expect(first.locator("[data-field=utilisation]")).to_have_text("87 %")
    expect(first.locator("[data-field=memory]")).to_have_text("3.0 GiB")
    drain_host("gpu-host-2")
    expect(page.locator("section[data-host='gpu-host-2'] .state")).to_have_attribute("data-state", "DRAINING")


def test_a_host_that_comes_while_one_looks_appears(page: Page, scene: Scene) -> None:
    page.goto("/hosts/")
    expect(page.locator("#live-dot")).to_have_attribute("data-status", "connected")

    report("gpu-host-9", slots=2, virtual=False)

    fresh = page.locator("section[data-host='gpu-host-9']")
    expect(fresh).to_contain_text("10.0.0.9")
    expect(fresh.locator("tbody tr")).to_have_count(2)
    expect(fresh.locator("[data-field=temperature]").first).to_have_text("52 °C")
    expect(fresh.locator("[data-field=power]").first).to_have_text("310 W")
    retire_host("gpu-host-9")
    expect(fresh.locator(".state")).to_have_attribute("data-state", "OFFLINE")


def test_a_host_that_has_another_gpu_than_before_is_shown_with_it(page: Page, scene: Scene) -> None:
    page.goto("/hosts/")
    expect(page.locator("#live-dot")).to_have_attribute("data-status", "connected")

    report("gpu-host-1", slots=5)

    expect(page.locator("section[data-host='gpu-host-1'] tbody tr")).to_have_count(5)
