"""The fair-share page: the scheduler's own figures, in words, and nothing of others by name."""

import html
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs.control.snapshots import snapshot
from jobs.messages import message
from jobs.models import InstanceGroup, Job, SlotClaim
from jobs.states import JobState
from scheduling.sharing_report import fair_share
from studies.models import Study
from tests.factories import InstanceGroupFactory, JobFactory
from tests.scene import Scene
from workers.models import Slot


@pytest.fixture
def vision(scene: Scene) -> InstanceGroup:
    """Owns two GPUs that the other group has borrowed; a training of Bob's waits for them there."""
    InstanceGroup.objects.update(quota=6, reclaim_grace_seconds=10)
    group = InstanceGroupFactory(name="vision", resource_group=scene.first.instance_group.resource_group, quota=2)
    JobFactory(
        owner=User.objects.get(username="bob"),
        instance_group=group,
        name="bobs-third",
        state=JobState.PENDING,
        max_slots=2,
    )
    return group


def text(response: HttpResponse) -> str:
    assert response.status_code == 200
    return html.unescape(response.content.decode())


def cells(page: str, row: str) -> dict[str, str]:
    """Label -> number in the row of this name."""
    found = page.split(f'id="{row}"')[1].split("</tr>")[0]
    labels = ("Deserved", "Held", "Borrowed", "Lent", "Planned", "Quota")
    return {
        name: found.split(f'data-label="{name}" class="number">')[1].split("<")[0] for name in labels if name in found
    }


def test_the_figures_are_those_of_the_scheduler(carols: Client, scene: Scene, vision: InstanceGroup) -> None:
    page = text(carols.get("/fair-share/"))
    [pool] = fair_share(snapshot(timezone.now())).sharing_pools
    for share in pool.groups:
        shown = cells(page, f"group-{InstanceGroup.objects.get(name=share.group.name).pk}")
        assert (shown["Held"], shown["Borrowed"], shown["Lent"]) == tuple(
            map(str, (share.held, share.borrowed, share.lent))
        )
        assert float(shown["Deserved"]) == float(share.deserved)
    assert cells(page, f"group-{vision.pk}") == {
        "Deserved": "2", "Held": "0", "Borrowed": "0", "Lent": "2", "Planned": "2", "Quota": "2",
    }  # fmt: skip


def test_who_waits_for_whom_is_a_sentence(carols: Client, vision: InstanceGroup) -> None:
    waits = "bobs-third of vision waits: sig-elastic has borrowed 2 of vision's GPUs"
    sentence = f"{waits}, which are returned after the present step."
    assert sentence in text(carols.get("/fair-share/"))
    assert sentence in carols.get("/api/v1/fair-share/").json()["waiting"]


def test_how_long_a_training_that_is_stopped_may_take_is_said(
    carols: Client, scene: Scene, vision: InstanceGroup
) -> None:
    Job.objects.filter(pk=scene.waiting.pk).delete()
    Job.objects.filter(pk=scene.second.pk).update(min_slots=5)
    Job.objects.filter(pk=scene.first.pk).update(min_slots=3)
    page = text(carols.get("/fair-share/"))
    assert "which are returned within 10 s, because a training is being stopped." in page


def test_others_trainings_and_groups_have_no_names(alices: Client, scene: Scene, vision: InstanceGroup) -> None:
    vision.members.add(User.objects.get(username="bob"))
    page, answer = text(alices.get("/fair-share/")), alices.get("/api/v1/fair-share/")
    for seen in (page, answer.content.decode()):
        assert "T1 digits-cnn" in seen
        assert "sig-elastic" in seen
        for secret in ("vision", "bobs-third", "bobs-secret"):
            assert secret not in seen
    assert "Another user's training of another instance group waits: sig-elastic has borrowed 2 of" in page
    assert {share["name"] for share in answer.json()["jobs"] if not share["visible"]} == {"another user's training"}


def test_where_nobody_waits_the_page_says_so(alices: Client, scene: Scene) -> None:
    Job.objects.filter(state=JobState.PENDING).delete()
    InstanceGroup.objects.update(preemption=False)
    assert "No training waits: each has all its deserved GPUs." in text(alices.get("/fair-share/"))


def test_without_groups_or_trainings_it_is_no_error(alices: Client, scene: Scene, vision: InstanceGroup) -> None:
    Study.objects.all().delete()
    SlotClaim.objects.all().delete()
    Job.objects.all().delete()
    assert "No training waits or runs." in text(alices.get("/fair-share/"))
    InstanceGroup.objects.all().delete()
    assert "There are no instance groups yet" in text(alices.get("/fair-share/"))


def test_more_groups_and_trainings_cost_no_more_queries(carols: Client, scene: Scene) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert carols.get("/fair-share/").status_code == 200
        return len(captured)

    few = queries()
    common: dict[str, Any] = {"resource_group": scene.first.instance_group.resource_group}
    for _ in range(6):
        JobFactory(instance_group=InstanceGroupFactory(**common), reason_params=message("submitted"))
    assert queries() == few
    assert few <= 14


def test_a_group_under_goodput_has_a_price_and_a_gap(carols: Client, scene: Scene, vision: InstanceGroup) -> None:
    before = carols.get("/api/v1/fair-share/").json()["pools"][0]["groups"]
    assert {(group["price"], group["gap"]) for group in before} == {(None, None)}
    InstanceGroup.objects.filter(pk=scene.first.instance_group.pk).update(policy="goodput")
    groups = {group["name"]: group for group in carols.get("/api/v1/fair-share/").json()["pools"][0]["groups"]}
    own = groups[scene.first.instance_group.name]
    assert own["price"] >= 0
    assert 0 <= own["gap"] <= 1
    assert groups["vision"]["price"] is None
    page = text(carols.get("/fair-share/"))
    assert page.count("goodput-price") == 1
    assert f"{own['name']}: " in page.split("goodput-price")[1].split("</p>")[0]


def test_several_kinds_of_gpu_have_a_price_each(carols: Client, scene: Scene) -> None:
    own = scene.first.instance_group
    InstanceGroup.objects.filter(pk=own.pk).update(policy="goodput")
    Slot.objects.filter(host=Slot.objects.earliest("pk").host).update(device_model="A100")
    Slot.objects.exclude(device_model="A100").update(device_model="T4")
    groups = {group["name"]: group for group in carols.get("/api/v1/fair-share/").json()["pools"][0]["groups"]}
    assert groups[own.name]["prices"].keys() == {"A100", "T4"}


def test_forty_that_wait_for_the_same_are_one_sentence_below_the_bars(alices: Client, scene: Scene) -> None:
    params = message("in_line", missing=8, min_slots=8, taken=8, capacity=8)
    common: dict[str, Any] = {"owner": scene.alice, "instance_group": scene.first.instance_group, "min_slots": 8}
    sweep = [JobFactory(name=f"sweep-{number}", reason_params=params, **common) for number in range(39)]
    page = text(alices.get("/fair-share/"))
    sentence = "40 trainings, each: Waits for 8 more GPUs: it needs 8, and 8 of 8 are in use."
    assert page.count("Waits for 8 more GPUs") == 1
    assert page.index("share-bar") < page.index(sentence)
    assert sentence in alices.get("/api/v1/fair-share/").json()["waiting"]
    names = page.split("waits-names")[1].split("</ul>")[0]
    assert all(f'href="/jobs/{job.pk}/"' in names for job in [*sweep, scene.waiting])


def test_more_than_five_reasons_and_trainings_that_deserve_nothing_are_folded(alices: Client, scene: Scene) -> None:
    Job.objects.filter(pk=scene.waiting.pk).delete()
    for number in range(1, 9):
        params = message("in_line", missing=number, min_slots=8, taken=8, capacity=8)
        JobFactory(owner=scene.alice, instance_group=scene.first.instance_group, min_slots=8, reason_params=params)
    page = text(alices.get("/fair-share/"))
    shown, folded = page.split('id="other-waits"')
    assert (shown.count("Waits for"), folded.count("Waits for")) == (5, 3)
    shown, folded = page.split('id="without-gpus"')
    assert (shown.count('<tr id="job-'), folded.count('<tr id="job-')) == (3, 8)
