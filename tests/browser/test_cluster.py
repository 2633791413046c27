"""The cluster's page as a person uses it: live, by keyboard, as a table and as a file."""

import re
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import transaction
from django.utils import timezone
from playwright.sync_api import Page, expect

from core import live
from jobs.control.generations import add_point
from jobs.control.transition import Why
from jobs.messages import message
from jobs.models import AllocationPoint, SlotClaim
from scheduling.plan import PlanReason
from tests.scene import Scene, shares
from workers.actions import retire_host
from workers.models import CapacityPoint, GpuReading, Host, Slot
from workers.topics import CLUSTER

TRACE = "[data-chart=cluster-trace]"


@pytest.fixture(autouse=True)
def nothing_to_complain(complaints: list[str]) -> object:
    yield
    assert complaints == []


@pytest.fixture
def cluster(page: Page) -> Page:
    page.goto("/cluster/")
    expect(page.locator("#live-dot")).to_have_attribute("data-status", "connected")
    return page


def test_arrow_keys_walk_the_grid_and_enter_opens_the_job(cluster: Page, scene: Scene) -> None:
    stops = cluster.locator("#gpu-grid [tabindex='0']")
    expect(stops).to_have_count(1)
    stops.focus()
    for key in ("ArrowDown", "ArrowRight", "End", "ArrowUp", "Home"):
        cluster.keyboard.press(key)
    expect(cluster.locator("[id='gpu-gpu-host-1:0']")).to_be_focused()
    expect(stops).to_have_count(1)
    cluster.keyboard.press("Enter")

    cluster.wait_for_url(f"**/jobs/{scene.first.pk}/")


def test_a_gpu_that_changes_hands_is_seen_at_once(cluster: Page, scene: Scene) -> None:
    expect(cluster.locator("#counts [data-status=training] b")).to_have_text("8")
    with transaction.atomic():
        SlotClaim.objects.filter(slot__host__name="gpu-host-2", slot__index=3).update(released_at=timezone.now())
        live.publish(CLUSTER, "state", {"slots": {"gpu-host-2:3": {"job": None, "vacating": False}}})

    free = cluster.locator("[data-slot='gpu-host-2:3']")
    expect(free).to_have_attribute("data-status", "free")
    expect(cluster.locator("#counts [data-status=free] b")).to_have_text("1")
    expect(free).not_to_have_attribute("href", re.compile("."))


def test_a_training_that_starts_appears_in_the_trace_with_its_reason(cluster: Page, scene: Scene) -> None:
    why = Why(PlanReason.GRANTED, shares(2, "others_have", others_count=2, others_slots=6), "scheduler")
    add_point(scene.waiting, why, at=timezone.now() - timedelta(seconds=1), slots=2, generation=1)

    chart = cluster.locator(TRACE)
    expect(chart.locator(".chart-legend")).to_contain_text("digits-wide")
    chart.get_by_role("button", name="Table").click()
    expect(chart.locator("tbody")).to_contain_text("2 of 8 GPUs: 2 other trainings have 6.")


def test_the_capacity_steps_where_a_host_left_and_free_is_what_was_free_then(cluster: Page, scene: Scene) -> None:
    now = timezone.now()
    came = CapacityPoint.objects.get(host__name="gpu-host-2")
    CapacityPoint.objects.filter(pk=came.pk).update(at=now - timedelta(minutes=10))
    cluster.reload()
    line = f"document.querySelector('{TRACE} .chart-canvas').data.find(({{ meta }}) => meta.kind === 'capacity')"
    cluster.wait_for_function(f"() => {line}?.y.join() === '4,8,8'")
    expect(cluster.locator("#live-dot")).to_have_attribute("data-status", "connected")

    retire_host("gpu-host-2")

    cluster.wait_for_function(f"() => {line}.y.join() === '4,8,4,4'")
    expect(cluster.locator("[data-stale]")).to_have_count(4)  # they stay held: their processes may well train on
    cluster.locator(TRACE).get_by_role("button", name="Table").click()
    expect(cluster.locator(f"{TRACE} tbody tr", has_text="GPUs in the pool")).to_have_count(2)


def test_many_changes_are_means_and_the_file_has_all(cluster: Page, scene: Scene) -> None:
    now = timezone.now()
    AllocationPoint.objects.bulk_create(
        AllocationPoint(
            job=scene.done,
            at=now - timedelta(seconds=number),
            slots=number % 3,
            attempt=2,
            generation=number,
            reason_code=PlanReason.GRANTED,
            reason_params=message("no_progress", text="=1+1"),
        )
        for number in range(3000)
    )
    chart = cluster.locator(TRACE)
    chart.get_by_role("button", name="1 h").click()

    expect(chart.locator(".chart-note")).to_contain_text("each point is the mean of 13 s")
    drawn = f"Math.max(...document.querySelector('{TRACE} .chart-canvas').data.map(trace => trace.x.length))"
    assert cluster.evaluate(drawn) <= 600
    with cluster.expect_download() as download:
        chart.get_by_role("button", name="CSV").click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert len(lines) > 3000
    assert "'=1+1" in lines[1]


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844)])
def test_tiles_show_the_whole_of_how_busy_a_gpu_is(page: Page, scene: Scene, width: int, height: int) -> None:
    GpuReading.objects.update(utilisation_percent=100)
    page.set_viewport_size({"width": width, "height": height})
    for address in ("/", f"/jobs/{scene.first.pk}/"):
        page.goto(address)
        notes = page.locator(".slot-note:text-is('100 % busy')")
        expect(notes.first).to_be_visible()
        assert all(notes.evaluate_all("(notes) => notes.map((note) => note.scrollWidth <= note.clientWidth)"))


@pytest.mark.parametrize("width", [1440, 390])
def test_no_gpu_is_beyond_the_edge(page: Page, scene: Scene, width: int) -> None:
    host = Host.objects.get(name="gpu-host-1")
    Host.objects.filter(pk=host.pk).update(ngpus=8)
    Slot.objects.bulk_create(Slot(host=host, index=index) for index in range(4, 8))
    page.set_viewport_size({"width": width, "height": 900})
    page.goto("/cluster/")
    tiles = page.locator("#gpu-grid .slot")
    expect(tiles).to_have_count(12)
    edges = tiles.evaluate_all("tiles => tiles.map((tile) => tile.getBoundingClientRect().right)")
    assert max(edges) <= width
    assert (
        page.locator("#gpu-grid").evaluate("grid => grid.parentElement.scrollWidth - grid.parentElement.clientWidth")
        == 0
    )


def test_a_period_that_does_not_reach_the_server_says_so(cluster: Page) -> None:
    cluster.context.set_offline(True)
    cluster.locator(TRACE).get_by_role("button", name="24 h").click()
    expect(cluster.get_by_text("The chart still shows the period before")).to_be_visible()
