"""Check that a page plus the events of real actions is what it would fetch afresh."""

import json
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from tidepool.protocol import Report, from_json

from core import live
from core.hub import frames, is_urgent
from core.live import Event, merge
from jobs import actions
from jobs.control.generations import add_point
from jobs.control.hosts import reap_lost_hosts, record_hosts
from jobs.control.job_end import requeue_interrupted
from jobs.control.lifecycle import open_claims, release_claims
from jobs.control.transition import Why, change, lock_job
from jobs.models import Job
from jobs.pages.job.views import job_live
from jobs.topics import job_topic
from scheduling.plan import PlanReason
from tests.jobs.cluster import FakeHost
from tests.scene import Scene, shares
from workers.actions import drain_host, retire_host
from workers.models import Host
from workers.topics import CLUSTER

WHY = Why(PlanReason.GREW_INTO_FREE_SLOTS, shares(8, "alone"), "scheduler")


def _grow(job: Job) -> None:
    change(
        lock_job(job.pk),
        WHY,
        slots=8,
        target_slots=8,
        step=900,
        progress=0.7,
        final_metrics={**job.run.final_metrics, "loss": 0.01},
    )
    add_point(job, WHY, at=timezone.now(), slots=8, generation=5, pause_ms=31.5)


def _release(job: Job) -> None:
    release_claims(open_claims(job))


def _reprioritise(job: Job) -> None:
    actions.change_job(job.pk, actions.JobChange(priority=7000), "alice")
    actions.change_job(job.pk, actions.JobChange(max_slots=6), "alice")


def _suspend(job: Job) -> None:
    actions.suspend(job.pk, "alice")


def _cancel(job: Job) -> None:
    actions.cancel(job.pk, "alice")


ACTIONS = [_grow, _release, _reprioritise, _suspend, _cancel]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """Events as the broker gets them."""
    events: list[Event] = []

    class Broker:
        def pipeline(self, transaction: bool) -> AbstractContextManager["Broker"]:
            return nullcontext(self)

        def publish(self, channel: str, payload: str) -> None:
            assert channel == live.LIVE_CHANNEL
            events.append(Event(**json.loads(payload)))

        def execute(self) -> None:
            pass

    monkeypatch.setattr(live, "connect", Broker)
    return events


def followed(old: dict[str, Any], topic: str, sent: list[Event], keys: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    """The same that `live.js` does: merge states, append what is new by its key."""
    events = [event for event in sent if event.topic == topic]
    tip = max([old["seq"], *(event.seq for event in events)])
    state, append = old["state"], {name: list(items) for name, items in old["append"].items()}
    for frame in frames(topic, events, old["seq"], tip):
        assert frame["kind"] != "reset"
        if frame["kind"] == "state":
            state = merge(topic, state, frame["data"])
            continue
        for name, items in frame["data"].items():
            known = {tuple(item[key] for key in keys[name]) for item in append[name]}
            append[name] += [item for item in items if tuple(item[key] for key in keys[name]) not in known]
    return {"seq": tip, "state": state, "append": append}


KEYS = {"allocation": ("job", "at", "slots"), "metrics": ("name", "step"), "events": ("seq",)}


@pytest.mark.parametrize("act", ACTIONS, ids=lambda act: act.__name__)
def test_a_jobs_page(
    act: Callable[[Job], None], scene: Scene, sent: list[Event], django_capture_on_commit_callbacks: Any
) -> None:
    old = job_live(scene.first)

    with django_capture_on_commit_callbacks(execute=True):
        act(scene.first)

    fresh = job_live(Job.objects.get(pk=scene.first.pk))
    now = followed(old, job_topic(scene.first.pk), sent, KEYS)
    # Ranks and their logs come by fetching alone, the cluster has its own numbers.
    fetched_only = {"log": None, "cluster_seq": 0}
    assert {**fresh, **fetched_only} == {**now, **fetched_only}


def shown(client: Client, address: str) -> str:
    """The page's part without what moves by itself."""
    text = client.get(address, headers={"HX-Request": "true"}).content.decode()
    return re.sub(r'data-seq="\d+"|<time[^>]*>[^<]*</time>|csrfmiddlewaretoken[^>]*|idle for [^<",]*', "", text)


#: Pages that show slots, sizes, holders, busyness or states, and their parts that are rendered anew.
PARTS = ("/overview/now/", "/cluster/now/", "/hosts/")


def urgent_news(sent: list[Event], topics: set[str]) -> bool:
    return any(event.topic in topics and is_urgent(event.data) for event in sent)


@pytest.mark.parametrize("address", PARTS)
@pytest.mark.parametrize("act", ACTIONS, ids=lambda act: act.__name__)
def test_what_changes_a_page_is_told_on_a_topic_that_it_follows(
    act: Callable[[Job], None],
    address: str,
    scene: Scene,
    sent: list[Event],
    client: Client,
    django_capture_on_commit_callbacks: Any,
) -> None:
    client.force_login(scene.alice)
    before = shown(client, address)

    with django_capture_on_commit_callbacks(execute=True):
        act(scene.first)

    followed_topics = {CLUSTER} | ({job_topic(scene.first.pk)} if address == "/overview/now/" else set())
    if shown(client, address) != before:
        assert urgent_news(sent, followed_topics)


def test_the_clusters_topic_says_nothing_about_whose_jobs_they_are(
    scene: Scene, sent: list[Event], django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        for act in ACTIONS:
            act(scene.first)

    said = json.dumps([event.data for event in sent if event.topic == CLUSTER])
    assert said != "[]"
    for secret in ("alice", "digits", "nobody else"):
        assert secret not in said


def _drain(scene: Scene) -> None:
    drain_host("gpu-host-1", "carol")


def _retire(scene: Scene) -> None:
    retire_host("gpu-host-2")


def _first_report(scene: Scene) -> None:
    FakeHost("gpu-host-9", slots=2).enroll().send()


def _fall_silent(scene: Scene) -> None:
    Host.objects.filter(name="gpu-host-2").update(last_report_at=timezone.now() - timedelta(hours=1))
    reap_lost_hosts(None, timezone.now())


def _stop(scene: Scene) -> None:
    requeue_interrupted()


@pytest.mark.parametrize("address", PARTS)
@pytest.mark.parametrize("act", [_drain, _retire, _first_report, _fall_silent, _stop])
def test_what_changes_a_host_is_told_to_every_page(
    act: Callable[[Scene], None],
    address: str,
    scene: Scene,
    sent: list[Event],
    client: Client,
    django_capture_on_commit_callbacks: Any,
) -> None:
    client.force_login(scene.alice)
    before = shown(client, address)

    with django_capture_on_commit_callbacks(execute=True):
        act(scene)

    assert shown(client, address) != before
    assert urgent_news(sent, {CLUSTER})


def test_readings_alone_leave_the_clusters_topic_alone(
    scene: Scene, sent: list[Event], django_capture_on_commit_callbacks: Any
) -> None:
    host = FakeHost("gpu-host-1").enroll()
    host.send()
    with django_capture_on_commit_callbacks(execute=True):
        now = timezone.now() + timedelta(seconds=5)
        record_hosts([from_json(Report, host.report(at=now.timestamp()))], now)

    assert not [event for event in sent if event.topic == CLUSTER]
