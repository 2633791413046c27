"""The page of the hosts moves with what hosts report."""

import re
from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import BrowserContext, Page, expect
from tidepool.protocol import DeviceReading, HostFacts, Report

from jobs.control.hosts import record_hosts
from jobs.control.lifecycle import release_claims
from jobs.control.live_readings import LiveReadings
from jobs.models import SlotClaim
from tests.browser.conftest import listen, log_in
from tests.browser.test_accessibility import fits, look_at, take_picture, violations
from tests.scene import Scene, user_who_can_log_in
from workers.actions import drain_host, enroll_host, remove_host, restore_host, retire_host
from workers.models import GpuReading, Host

BLOCKED = "window.WebSocket = class { constructor() { throw new Error('blocked'); } };"


@pytest.fixture(autouse=True)
def nothing_to_complain(complaints: list[str]) -> object:
    yield
    assert complaints == []


def report(name: str, slots: int = 4, busy: float = 41.0, *, virtual: bool = True, after_seconds: int = 0) -> None:
    """Take the report of a host's executor, as `take_reports` does."""
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
    taken = Report(
        host=name,
        boot="boot-1",
        at=now.timestamp(),
        applied_revision=known.desired_revision if known else 0,
        facts=HostFacts(address="10.0.0.9", ncpus=8, ngpus=slots, memory_bytes=64 * 1024**3, virtual=virtual),
        devices=devices,
        ranks=[],
        entries=[],
    )
    record_hosts([taken], now)
    LiveReadings().send([taken])


@pytest.mark.parametrize("way", ["websocket", "polling"])
def test_readings_and_states_appear_by_themselves(page: Page, scene: Scene, way: str) -> None:
    report("gpu-host-1", busy=12.0, after_seconds=1)
    if way == "polling":
        page.add_init_script(BLOCKED)
    page.goto("/hosts/")
    status = "connected" if way == "websocket" else "polling"
    expect(page.locator("#live-dot")).to_have_attribute("data-status", status)
    first = page.locator("tr", has=page.locator("a[data-slot='gpu-host-1:0']"))
    expect(first.locator("[data-field=utilisation]")).to_have_text("12 %")

    report("gpu-host-1", busy=87.4, after_seconds=2)

    expect(first.locator("[data-field=utilisation]")).to_have_text("87 %")
    expect(first.locator("[data-field=memory]")).to_have_text("3 GiB")
    drain_host("gpu-host-2", "carol")
    expect(page.locator("section[data-host='gpu-host-2'] .state")).to_have_attribute("data-state", "DRAINING")


def test_a_host_that_comes_while_one_looks_appears(page: Page, scene: Scene) -> None:
    page.goto("/hosts/")
    expect(page.locator("#live-dot")).to_have_attribute("data-status", "connected")

    enroll_host("gpu-host-9", "carol")
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


@pytest.fixture
def carols(scene: Scene, context: BrowserContext, complaints: list[str]) -> Page:
    """An administrator's browser."""
    user_who_can_log_in("carol", is_staff=True)
    page = context.new_page()
    listen(page, complaints)
    log_in(page, "carol")
    return page


def test_a_host_is_drained_by_keyboard_and_taken_back(carols: Page) -> None:
    carols.set_viewport_size({"width": 390, "height": 844})
    carols.goto("/hosts/")
    host = carols.locator("section[data-host='gpu-host-1']")
    host.get_by_role("button", name="Drain gpu-host-1").focus()
    carols.keyboard.press("Enter")

    dialog = carols.get_by_role("dialog", name="Drain gpu-host-1?")
    expect(dialog).to_contain_text("“T1 digits-cnn” leaves 3 GPUs after a step")
    carols.keyboard.press("Escape")
    expect(host.get_by_role("button", name="Drain gpu-host-1")).to_be_focused()
    expect(host.locator(".state")).to_have_attribute("data-state", "ONLINE")

    carols.keyboard.press("Enter")
    dialog.get_by_role("button", name="Drain gpu-host-1").click()
    expect(host.locator(".state")).to_have_attribute("data-state", "DRAINING")
    carols.get_by_role("button", name="Undo").click()
    expect(host.locator(".state")).to_have_attribute("data-state", "ONLINE")


def test_a_host_that_cannot_be_removed_yet_says_why(carols: Page, complaints: list[str]) -> None:
    drain_host("gpu-host-1", "carol")
    carols.goto("/hosts/")
    carols.get_by_role("button", name="Remove gpu-host-1").click()
    expect(carols.locator("#toasts")).to_contain_text("4 GPUs of it are held by trainings; wait until they have moved")
    expect(carols.get_by_role("dialog")).to_have_count(0)
    complaints.clear()  # the browser tells of the 409 itself


def test_a_host_goes_when_it_is_removed_and_comes_when_it_is_restored(page: Page, scene: Scene) -> None:
    enroll_host("gpu-host-9", "carol")
    report("gpu-host-9", slots=1)
    page.goto("/hosts/")
    expect(page.locator("#live-dot")).to_have_attribute("data-status", "connected")
    host = page.locator("section[data-host='gpu-host-9']")
    expect(host).to_be_visible()

    drain_host("gpu-host-9", "carol")
    remove_host("gpu-host-9", "carol")
    expect(host).to_have_count(0)
    restore_host("gpu-host-9", "carol")
    expect(host.locator(".state")).to_have_attribute("data-state", "DRAINING")


def test_a_gpu_that_falls_idle_and_changes_hands_is_shown(page: Page, scene: Scene) -> None:
    page.goto("/hosts/")
    holder = page.locator("a[data-slot='gpu-host-1:0']")
    expect(holder).to_contain_text("T1 digits-cnn")

    long_ago = timezone.now() - timedelta(minutes=5)
    SlotClaim.objects.update(claimed_at=long_ago)
    GpuReading.objects.filter(slot__host__name="gpu-host-1", slot__index=0).update(idle_since=long_ago)
    expect(page.locator("#idle tbody tr")).to_have_count(1)
    expect(page.locator("#idle tbody tr")).to_contain_text("5 min")
    expect(holder).to_contain_text("idle for 5 min")

    claim = SlotClaim.objects.get(slot__host__name="gpu-host-1", slot__index=0)
    release_claims([claim])
    expect(holder.locator(".slot-label")).to_have_text("free")
    expect(page.locator("#idle")).to_contain_text("No held GPU is idle")


def test_a_machine_is_let_in_by_a_command_that_is_shown_once(carols: Page) -> None:
    carols.goto("/hosts/")
    carols.get_by_role("link", name="Add hosts").click()
    carols.get_by_label("Machines").fill("2")
    carols.get_by_role("button", name="Create token").click()
    command = carols.get_by_label("Without containers")
    expect(command).to_have_value(re.compile(r"^python -m workers\.executor\.join --url http://.+ --token join_"))
    expect(carols.locator("#made")).to_be_focused()
    expect(carols.locator("#tokens tbody tr")).to_have_count(1)
    assert violations(carols) == []
    take_picture(carols, "/hosts/join made", "light")
    look_at(carols, "narrow dark")
    assert fits(carols, 390)
    take_picture(carols, "/hosts/join made", "narrow")

    carols.get_by_role("button", name="Revoke the token of carol").click()
    carols.get_by_role("button", name="Revoke token").click()
    expect(carols.locator("#main")).to_contain_text("no further host can join with it")
    expect(command).to_have_count(0)
    expect(carols.locator("#tokens tbody tr")).to_have_count(0)
