"""A user sees own jobs, staff sees all; of others' jobs nothing but the GPUs they hold."""

import json
import re

import pytest
from django.test import Client

from jobs.models import Job
from tests.scene import Scene

ALICES_NAMES = ("T1 digits-cnn", "T2 digits-cnn", "digits-wide", "digits-baseline", "digits-resume")


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/overview/now/",
        "/cluster/",
        "/live/cluster.json",
        "/cluster/trace.json",
        "/jobs/",
        "/jobs/?search=digits",
        "/jobs/rows/",
    ],
)
def test_bob_never_reads_the_names_of_alices_jobs(path: str, bobs: Client) -> None:
    content = bobs.get(path).content.decode()

    for name in ALICES_NAMES:
        assert name not in content
    assert "alice" not in content


def test_bob_sees_that_somebody_holds_the_gpus(bobs: Client) -> None:
    content = bobs.get("/").content.decode()

    assert content.count('<span class="slot-label" dir="auto">another user&#x27;s training') == 8


@pytest.mark.parametrize("action", ["change", "cancel", "suspend", "resume"])
def test_others_jobs_cannot_be_changed(action: str, scene: Scene, bobs: Client) -> None:
    before = Job.objects.values().get(pk=scene.first.pk)

    response = bobs.post(f"/jobs/{scene.first.pk}/{action}/", {"priority": 1, "max_slots": 1})

    assert response.status_code == 404
    assert Job.objects.values().get(pk=scene.first.pk) == before


def test_staff_sees_the_jobs_of_all(carols: Client) -> None:
    content = carols.get("/jobs/").content.decode()

    assert all(name in content for name in (*ALICES_NAMES, "bobs-secret"))


def test_used_by_lists_only_what_the_viewer_may_see(scene: Scene, alices: Client, bobs: Client) -> None:
    path = f"/datasets/{scene.dataset.dataset_id}/"

    assert "T1 digits-cnn" in alices.get(path).content.decode()
    assert "bobs-secret" not in alices.get(path).content.decode()
    assert "T1 digits-cnn" not in bobs.get(path).content.decode()


def test_chart_of_the_pool_hides_reasons_of_others(bobs: Client, alices: Client) -> None:
    assert "twice your priority" in _figure(alices)
    assert "twice" not in _figure(bobs)


def _figure(client: Client) -> str:
    found = re.search(r'<script id="figure-gpus"[^>]*>(.*?)</script>', client.get("/").content.decode(), re.DOTALL)
    assert found
    return json.dumps(json.loads(found[1]))
