"""`/metrics` as Prometheus reads it, against what the database says."""

import re
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
import redis
import yaml
from django.contrib.auth.models import User
from django.core.cache.backends.locmem import LocMemCache
from django.db import connection
from django.db.models import Count
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import resolve
from django.utils import timezone
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from accounts.tokens import create_token
from jobs import actions
from jobs.control.plans import Leadership
from jobs.control.snapshots import snapshot
from jobs.management.commands.run_scheduler import Scheduler
from jobs.models import AllocationPoint, Job, SchedulerLease, SlotClaim
from jobs.states import JobState
from scheduling.sharing_report import fair_share
from tests.factories import InstanceGroupFactory
from tests.jobs.cluster import Cluster, FakeHost
from tests.test_architecture import ROOT
from webapp import metrics
from webapp.metrics import REGISTRY, History
from workers.actions import drain_host
from workers.models import GpuReading

pytestmark = pytest.mark.django_db
Samples = dict[str, dict[tuple[tuple[str, str], ...], float]]
TOKEN = "a-token-of-prometheus-alone"


def parsed(text: str) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


@pytest.fixture
def scrape(settings: Any, client: Client) -> Callable[[], Samples]:
    settings.TIDEPOOL_METRICS_TOKEN = TOKEN

    def scrape() -> Samples:
        answer = client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
        assert answer.status_code == 200
        assert answer["Content-Type"].startswith("text/plain; version=")
        return parsed(answer.content.decode())

    return scrape


def of(samples: Samples, name: str, **labels: str) -> float:
    return samples[f"tidepool_{name}"][tuple(sorted(labels.items()))]


def test_jobs_slots_and_groups_are_those_of_the_database(scrape, cluster: Cluster, submit):
    InstanceGroupFactory(name="empty", quota=3)
    training, waiting = submit(max_slots=6), submit(name="T2", max_slots=8, min_slots=8)
    cluster.turn()
    cluster.train(training)
    cluster.report()
    drain_host("gpu-host-2", "carol")
    scraped_at, seen = time.time(), scrape()
    for state in JobState:
        expected = Job.objects.filter(state=state).count()
        assert of(seen, "jobs", instance_group="sig-elastic", state=state) == expected
    assert of(seen, "jobs", instance_group="empty", state="RUNNING") == 0
    age = of(seen, "oldest_waiting_job_seconds", instance_group="sig-elastic")
    assert scraped_at - waiting.submitted_at.timestamp() <= age <= time.time() - waiting.submitted_at.timestamp()
    open_claims = SlotClaim.objects.filter(released_at__isnull=True)
    held = dict(open_claims.values_list("slot__host__name").annotate(Count("pk")))
    assert sum(held.values()) == of(seen, "group_slots_held", instance_group="sig-elastic") == 6
    for host, free, away in (("gpu-host-1", 4 - held["gpu-host-1"], 0), ("gpu-host-2", 0, 4 - held["gpu-host-2"])):
        assert of(seen, "slots", host=host, state="held") == held[host]
        assert of(seen, "slots", host=host, state="free") == free
        assert of(seen, "slots", host=host, state="away") == away
    assert (of(seen, "hosts", state="ONLINE"), of(seen, "hosts", state="DRAINING")) == (1, 1)
    assert of(seen, "group_slots_quota", instance_group="empty") == 3
    assert of(seen, "group_slots_deserved", instance_group="empty") == 0, "who asks for nothing"
    [pool] = fair_share(snapshot(timezone.now())).sharing_pools
    for share in pool.groups:
        for name in ("deserved", "borrowed", "lent"):
            assert of(seen, f"group_slots_{name}", instance_group=share.group.name) == float(getattr(share, name))
    assert ((("instance_group", "sig-elastic"),)) not in seen["tidepool_group_slots_quota"]


def test_wanted_capacity_is_planned_once_a_minute(scrape, cluster: Cluster, submit, monkeypatch):
    monkeypatch.setattr(metrics, "_wanted", LocMemCache("of-this-test", {"timeout": 60.0}))
    plans = Mock(wraps=metrics.wanted_capacity)
    monkeypatch.setattr(metrics, "wanted_capacity", plans)
    submit(min_slots=6, max_slots=6)
    first, second = scrape(), scrape()
    assert plans.call_count == 1
    assert first["tidepool_slots_wanted"] == second["tidepool_slots_wanted"] != {}


def test_each_device_tells_what_it_tells(scrape, cluster: Cluster):
    reading = GpuReading.objects.select_related("slot__host").get(slot__host__name="gpu-host-1", slot__index=2)
    GpuReading.objects.filter(pk=reading.pk).update(temperature_celsius=61, power_watts=None, utilisation_percent=97.5)
    seen = scrape()
    place = {"host": "gpu-host-1", "slot": "2", "model": "virtual GPU (CPU)"}
    assert of(seen, "gpu_utilisation_percent", **place) == 97.5
    assert of(seen, "gpu_temperature_celsius", **place) == 61
    assert "tidepool_gpu_power_watts" not in seen, "what no device tells is not told as 0"
    assert of(seen, "host_report_age_seconds", host="gpu-host-1") < 60


def test_the_scheduler_tells_who_leads_and_how_long_its_cycles_take(scrape, cluster: Cluster, monkeypatch):
    SchedulerLease.objects.all().delete()
    scheduler = Scheduler(stop=None)  # type: ignore[arg-type]  # never waits here
    for _ in range(3):
        scheduler.cycle()
    lease = SchedulerLease.objects.get()
    seen = scrape()
    [(labels, left)] = seen["tidepool_scheduler_lease_seconds"].items()
    assert dict(labels) == {"holder": lease.holder}
    assert left <= 3
    # A cycle is written down with the next one.
    assert of(seen, "scheduler_cycle_seconds_count") == lease.cycles == 2
    assert of(seen, "scheduler_cycle_seconds_sum") == pytest.approx(lease.cycles_seconds)
    assert 0 < lease.cycles_seconds < 60
    assert 0 <= of(seen, "scheduler_decision_age_seconds") < 60
    assert of(seen, "scheduler_epoch") == lease.epoch


def test_the_word_on_cycles_is_that_of_the_leader(cluster: Cluster):
    SchedulerLease.objects.all().delete()
    leader = Leadership("a")
    leader.renew()
    SchedulerLease.objects.update(expires_at=None)
    Leadership("b").renew()
    assert leader.renew() is None
    assert SchedulerLease.objects.get().cycles == 0


def test_waits_and_pauses_are_counted_once_each(cluster: Cluster, submit):
    registry = CollectorRegistry()
    history = History(registry)
    before = submit(name="before")
    cluster.turn()
    history.look()
    actions.cancel(before.pk, "alice")
    cluster.settle()
    first = submit()
    cluster.turn()
    for slots in (2, 4):
        AllocationPoint.objects.create(
            job=first, at=first.submitted_at, slots=slots, attempt=1, generation=slots, reason_code="REBALANCED",
            pause_ms=slots * 100.0,
        )  # fmt: skip
    for _ in range(2):
        history.look()
    seen = parsed(generate_latest(registry).decode())
    assert of(seen, "queue_wait_seconds_count", instance_group="sig-elastic") == 1
    assert of(seen, "queue_wait_seconds_sum", instance_group="sig-elastic") < 60
    assert of(seen, "resize_pause_seconds_count") == 2
    assert of(seen, "resize_pause_seconds_sum") == pytest.approx(0.6)
    assert of(seen, "resize_pause_seconds_bucket", le="0.2") == 1
    assert of(seen, "resizes_total", reason="REBALANCED") == 2


def test_a_row_that_is_committed_after_a_later_one_is_counted(cluster: Cluster, submit):
    registry = CollectorRegistry()
    history = History(registry)
    history.look()
    job = submit()
    common = {"job": job, "at": job.submitted_at, "attempt": 1, "reason_code": "GRANTED", "pause_ms": 50.0}
    newest = AllocationPoint.objects.create(**common, slots=1, generation=1)
    history.look()
    AllocationPoint.objects.create(**common, slots=2, generation=2, pk=newest.pk + 7)
    history.look()
    AllocationPoint.objects.create(**common, slots=3, generation=3, pk=newest.pk + 3)
    history.look()
    assert of(parsed(generate_latest(registry).decode()), "resize_pause_seconds_count") == 3


def test_requests_are_counted_by_route_and_never_by_address(scrape, alice_client: Client, cluster: Cluster):
    before = scrape()
    for address in ("/jobs/1/", "/jobs/2/", "/nowhere/at/all/", "/static/css/site.css"):
        alice_client.get(address)
    alice_client.generic("BREW", "/jobs/")
    name, seen = "tidepool_http_request_seconds_count", scrape()
    new = {labels: count - before.get(name, {}).get(labels, 0) for labels, count in seen[name].items()}
    grown = {(dict(labels)["route"], dict(labels)["method"]): count for labels, count in new.items() if count}
    assert grown[(f"/{resolve('/jobs/1/').route}", "GET")] == 2
    assert grown[("none", "GET")] == 1
    assert grown[("/static/", "GET")] == 1
    assert grown[("/jobs/", "other")] == 1
    assert ("/metrics", "GET") in grown


def test_a_broker_that_is_down_is_told_and_hides_nothing(scrape, cluster: Cluster, monkeypatch):
    def down() -> redis.Redis:
        raise redis.exceptions.ConnectionError("down")

    monkeypatch.setattr(metrics, "connect", down)
    seen = scrape()
    assert of(seen, "broker_up") == 0
    assert "tidepool_reports_waiting" not in seen
    assert of(seen, "hosts", state="ONLINE") == 2


# --- sentences about metrics ---


@pytest.fixture
def names(scrape, cluster: Cluster, submit) -> set[str]:
    """Return the names of all families, with and without what follows the name in samples."""
    scrape()
    text = generate_latest(REGISTRY).decode()
    families = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE tidepool_")}
    return families | {sample for sample in parsed(text) if sample.startswith("tidepool_")}


def test_alerts_name_metrics_that_exist_and_say_what_to_do(names):
    [group] = yaml.safe_load((ROOT / "docs/operator/alerts.yml").read_text())["groups"]
    for rule in group["rules"]:
        assert rule.keys() == {"alert", "expr", "for", "labels", "annotations"}
        assert rule["annotations"].keys() == {"summary", "action"}
        used = set(re.findall(r"tidepool_\w+", rule["expr"]))
        assert {name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum") for name in used} <= names
        assert used or 'up{job="tidepool"}' in rule["expr"]
        assert all(
            rule["expr"].count(opening) == rule["expr"].count(closing) for opening, closing in ("()", "[]", "{}")
        )
    assert len({rule["alert"] for rule in group["rules"]}) == len(group["rules"]) > 8


def test_every_metric_is_in_the_operators_table(names):
    words = re.findall(r"`(\w+)`", (ROOT / "docs/operator/monitor.md").read_text())
    families = {name for name in names if not name.endswith(("_bucket", "_count", "_sum", "_created"))}
    assert {name for name in families if name.removeprefix("tidepool_") not in words} == set()


# --- permissions -------


def status(client: Client, **headers: str) -> int:
    return client.get("/metrics", headers=headers).status_code


def test_strangers_users_and_wrong_tokens_read_nothing(settings, client: Client, alice: User, alice_client: Client):
    settings.TIDEPOOL_METRICS_TOKEN = TOKEN
    wrong = [f"Bearer {TOKEN}x", TOKEN, "Bearer ", "Basic x", f"Bearer {create_token(alice)}", "Bearer ü"]
    assert {status(Client(), Authorization=given) for given in wrong} == {401}
    answer = Client().get("/metrics")
    assert (answer.status_code, answer["WWW-Authenticate"]) == (401, "Bearer")
    assert b"tidepool" not in answer.content
    assert status(alice_client) == 401


def test_no_token_at_all_does_not_open_it_to_an_empty_one(settings):
    settings.TIDEPOOL_METRICS_TOKEN = ""
    assert {status(Client(), Authorization=given) for given in ("Bearer ", "Bearer", "")} == {401}


def test_an_administrator_reads_it_by_session_and_by_token(carol: User, client: Client):
    assert status(Client(), Authorization=f"Bearer {create_token(carol)}") == 200
    client.force_login(carol)
    assert status(client) == 200


# --- costs -----------


def queries(scrape: Callable[[], Samples]) -> int:
    scrape()  # the first look of a process asks where rows end
    with CaptureQueriesContext(
        connection,
    ) as captured:
        scrape()
    return len(captured)


def test_as_many_queries_whatever_there_is(scrape, cluster: Cluster, submit):
    few = queries(scrape)
    for name in ("T2", "T3", "T4"):
        submit(name=name)
        InstanceGroupFactory()
        FakeHost(f"gpu-host-{name}", slots=8).enroll().send()
    cluster.turn()
    assert queries(scrape) == few <= 30


def test_history_is_counted_in_an_index_and_not_row_by_row(scrape, cluster: Cluster):
    if connection.vendor != "sqlite":
        pytest.skip("PostgreSQL chooses by the number of rows")
    with CaptureQueriesContext(connection) as captured:
        scrape()
    [counting] = [
        query["sql"] for query in captured if "COUNT" in query["sql"] and '"jobs_job"."state"' in query["sql"]
    ]
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {counting}")
        plan = [row[3] for row in cursor.fetchall()]
    assert any("COVERING INDEX" in step for step in plan), plan
