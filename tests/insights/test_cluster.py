"""Every GPU with its status, and since when it does nothing."""

import re
from collections.abc import Callable
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from rest_framework.test import APIClient
from tidepool.protocol import DeviceReading

from insights.cluster import HOSTS_ON_PAGE, IDLE_AFTER_SECONDS, cluster_live, pool_totals, slot_status
from jobs.messages import message
from jobs.models import AllocationPoint, JobRun
from jobs.queries.gpu_status import is_idle
from scheduling.plan import PlanReason
from tests.factories import JobFactory, SlotClaimFactory, host_with_slots
from workers.models import GpuReading, Host, Slot


@pytest.mark.parametrize(
    ("state", "facts", "status"),
    [
        ("ONLINE", {}, "free"),
        ("ONLINE", {"training": True}, "busy"),
        ("ONLINE", {"training": True, "idle_seconds": IDLE_AFTER_SECONDS}, "idle"),
        ("ONLINE", {"training": True, "idle_seconds": IDLE_AFTER_SECONDS - 1}, "busy"),
        ("ONLINE", {"held": True, "idle_seconds": 900.0}, "vacating"),
        ("DRAINING", {}, "draining"),
        ("DRAINING", {"training": True}, "busy"),
        ("LOST", {"training": True}, "silent"),
        ("OFFLINE", {"held": True}, "silent"),
        ("LOST", {}, "offline"),
        ("OFFLINE", {}, "offline"),
    ],
)
def test_a_gpu_has_one_status(state: str, facts: dict[str, Any], status: str) -> None:
    told = {"training": False, "idle_seconds": None, **facts}
    assert slot_status(state, **{"held": told["training"], **told}) == status


@pytest.fixture
def held(alice: User) -> Host:
    """Two GPUs of Alice's: one works, one has done nothing for ten minutes, five of them in her hands."""
    host, now = host_with_slots("host", 4), timezone.now()
    job = JobFactory(owner=alice, name="secret")
    for slot, ago in zip(host.slots.all(), (None, 10), strict=False):
        since = now - timedelta(minutes=5)
        SlotClaimFactory(slot=slot, job=job, claimed_at=since, trains_from=since)
        idle_since = ago and now - timedelta(minutes=ago)
        GpuReading.objects.create(slot=slot, at=now, utilisation_percent=0 if ago else 90, idle_since=idle_since)
    return host


def test_a_gpu_is_idle_since_its_training_has_it(held: Host, alice: User) -> None:
    live = cluster_live(alice)

    [host] = live["hosts"]
    assert [slot["status"] for slot in host["slots"]] == ["busy", "idle", "free", "free"]
    assert host["slots"][1]["idle_since"] == host["slots"][1]["held_since"]
    assert live["counts"] == {
        "held": 2,
        "training": 2,
        "busy": 1,
        "idle": 1,
        "vacating": 0,
        "silent": 0,
        "free": 2,
        "draining": 0,
        "offline": 0,
    }


def test_a_training_that_steps_is_not_idle_however_small_its_model_is(held: Host, alice: User) -> None:
    JobRun.objects.filter(job__name="secret").update(stepped_at=timezone.now() - timedelta(seconds=5))

    [host] = cluster_live(alice)["hosts"]
    assert [slot["status"] for slot in host["slots"]] == ["busy", "busy", "free", "free"]


@pytest.mark.parametrize(
    ("utilisation", "processor", "idle"),
    [(0.0, None, True), (0.0, 0.0, True), (4.9, 4.9, True), (50.0, 0.0, False), (0.0, 26.0, False), (None, 26.0, None)],
)
def test_who_loads_evaluates_or_waits_for_a_processor_is_not_idle(
    utilisation: float | None, processor: float | None, idle: bool | None
) -> None:
    assert is_idle(DeviceReading(0, "A100", False, utilisation, None, None, processor_percent=processor)) is idle


def test_the_gpus_of_a_lost_host_are_held_and_not_counted_as_training(held: Host, alice: User) -> None:
    Host.objects.filter(pk=held.pk).update(state=Host.State.LOST)

    counts = cluster_live(alice)["counts"]
    assert (counts["held"], counts["training"], counts["silent"], counts["offline"]) == (2, 0, 2, 2)


def test_other_users_see_a_number_and_no_name(held: Host, bob: User, carol: User) -> None:
    assert "secret" not in str(cluster_live(bob))
    assert "alice" not in str(cluster_live(bob))
    assert cluster_live(bob)["hosts"][0]["slots"][0]["label"] == "another user's training"
    assert cluster_live(carol)["hosts"][0]["slots"][0]["owner"] == "alice"


def test_it_costs_the_same_however_many_gpus_there_are(held: Host, alice: User) -> None:
    def cost(act: Callable[[User], Any]) -> int:
        with CaptureQueriesContext(connection) as queries:
            act(alice)
        return len(queries)

    before = cost(cluster_live)
    for number in range(3):
        for slot in host_with_slots(f"more-{number}", 8).slots.all():
            SlotClaimFactory(slot=slot, job=JobFactory())

    assert cost(cluster_live) == before == 3


def test_the_totals_are_those_of_all_hosts(held: Host, alice: User) -> None:
    offline = host_with_slots("offline", 2)
    Host.objects.filter(pk=offline.pk).update(state="OFFLINE")
    host_with_slots("z", 3)
    totals = pool_totals()
    assert totals.counts == cluster_live(alice)["counts"]
    assert (totals.present, totals.utilisation_percent) == (7, 45.0)
    assert totals.idle == [held.slots.all()[1].pk]


def test_the_totals_count_each_kind_of_gpu_as_its_tile_does(alice: User) -> None:
    now, job = timezone.now(), JobFactory(owner=alice)
    ago = now - timedelta(minutes=5)
    for state in Host.State.values:
        host = host_with_slots(f"host-{state}", 9)
        Host.objects.filter(pk=host.pk).update(state=state)
        for index, slot in enumerate(host.slots.order_by("index")):
            if index >= 5:
                Slot.objects.filter(pk=slot.pk).update(sick_since=ago, sick_why="of a test")
            if index % 5:  # the others are free
                begins = ago if index % 5 > 1 else None
                SlotClaimFactory(slot=slot, job=job, claimed_at=ago, trains_from=begins)
                idle_since = ago if index % 5 > 2 else None
                GpuReading.objects.create(slot=slot, at=now, utilisation_percent=10 * index, idle_since=idle_since)
    totals, tiles = pool_totals(), cluster_live(alice)
    assert totals.counts == tiles["counts"]
    assert len(totals.idle) == totals.counts["idle"] > 0
    held = [slot for host in tiles["hosts"] for slot in host["slots"] if slot["job"]]
    measured = [slot["utilisation_percent"] for slot in held]
    assert totals.utilisation_percent == pytest.approx(sum(measured) / len(measured))


@pytest.mark.parametrize("address", ["/", "/cluster/", "/hosts/"])
def test_hosts_come_in_pages(alices: Client, address: str) -> None:
    """Each host is on one page, and what a page fetches anew is what it shows."""
    names = [f"gpu-{number:03}" for number in range(HOSTS_ON_PAGE + 1)]
    for name in names:
        host_with_slots(name, 1)
    shown, query = [], "?"
    while query:
        page = alices.get(f"{address}{query}").content.decode()
        anew = re.search(r'hx-get="([^"]*)"[^>]*hx-trigger="fresh', page)
        assert anew
        for text in (page, alices.get(unescape(anew[1])).content.decode()):
            shown += re.findall(r' id="(?:slots-of-|host-)(gpu-\d+)"|<h2 id="host-\d+">(gpu-\d+)<', text)
        following = re.search(r'href="([^"]*)"\s+rel="next"', page)
        query = unescape(following[1]) if following else ""
    assert sorted("".join(found) for found in shown) == sorted([*names, *names])


def test_the_same_by_rest(held: Host, alice_api: APIClient, bob_api: APIClient) -> None:
    slots = alice_api.get("/api/v1/cluster/").json()["hosts"][0]["slots"]
    assert (slots[1]["status"], slots[1]["label"]) == ("idle", "secret")
    assert "secret" not in bob_api.get("/api/v1/cluster/").content.decode()

    trace = alice_api.get("/api/v1/cluster/trace/?minutes=60").json()
    assert (trace["capacity"], trace["changes"], trace["bands"]) == (4, 0, [])
    refused = alice_api.get("/api/v1/cluster/trace/?minutes=7")
    assert (refused.status_code, list(refused.json()["fields"])) == (400, ["minutes"])


def test_the_file_of_changes_holds_no_formula(alice: User, alice_api: APIClient) -> None:

    job = JobFactory(owner=alice, name="=1+1")
    point = {
        "attempt": 1,
        "generation": 1,
        "reason_code": PlanReason.GRANTED,
        "reason_params": message("no_progress", text="4 GPUs."),
    }
    AllocationPoint.objects.create(job=job, at=timezone.now(), slots=4, **point)

    answer = alice_api.get("/api/v1/cluster/trace.csv")

    head, row = b"".join(answer.streaming_content).decode().splitlines()
    assert head == "time,job,name,gpus,why,pause_ms"
    assert row.split(",")[1:] == [str(job.pk), "'=1+1", "4", "4 GPUs.", ""]
