"""Instance groups by REST: made, read, changed, previewed, started, stopped and deleted."""

from dataclasses import asdict
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from rest_framework.test import APIClient
from tidepool.goodput.model import ThroughputParameters

from core.roles import viewers
from jobs import actions
from jobs.models import InstanceGroup, Job, JobProfile
from jobs.queries.groups import changeable_terms
from tests.factories import InstanceGroupFactory, ResourceGroupFactory, UserFactory
from workers.models import Host

pytestmark = pytest.mark.django_db

GROUPS = "/api/v1/instance-groups/"
SIG = f"{GROUPS}sig-elastic/"


@pytest.fixture
def dave_api(group: InstanceGroup) -> APIClient:
    """Dave administers the group."""
    dave = UserFactory(username="dave")
    group.admins.add(dave)
    api = APIClient()
    api.force_login(dave)
    return api


def test_it_is_made_from_a_template_of_wmla_and_started(carol_api, group):
    body = {
        "name": "sig-2",
        "resource_group": "ComputeHostsGPU",
        "template": "dli-sig-template-2-2-0",
        "quota": 2,
        "members": ["carol"],
        "parameters": {"SPARK_EGO_PRIORITY": 70, "spark.ego.slots.max": "8"},
    }
    answer = carol_api.post(GROUPS, body, format="json")
    made = answer.json()
    assert answer.status_code == 201
    assert (made["state"], made["template"]) == ("STARTED", "elastic-fair-share")
    assert (made["policy"], made["preemption"], made["quota"], made["default_priority"]) == ("fairshare", True, 2, 70)
    assert made["members"] == ["carol"]
    assert {**made["deployment"], "text": ""} == {"ready": 1, "blocked": 0, "slots": 4, "text": ""}
    [sentence] = made["without_effect"]
    assert sentence.startswith("spark.ego.slots.max ")
    read = carol_api.get(f"{GROUPS}sig-2/").json()
    assert read == {name: value for name, value in made.items() if name not in ("deployment", "without_effect")}


def test_without_a_host_that_is_ready_it_is_only_registered(carol_api, group):
    Host.objects.update(state=Host.State.LOST)
    made = carol_api.post(GROUPS, {"name": "sig-2", "resource_group": "ComputeHostsGPU"}, format="json").json()
    assert (made["state"], made["deployment"]["ready"]) == ("REGISTERED", 0)
    assert carol_api.post(f"{GROUPS}sig-2/start/").json()["code"] == "not_deployed"


def test_only_created_it_waits_to_be_started(carol_api, group):
    body = {"name": "sig-2", "resource_group": "ComputeHostsGPU", "deploy": False}
    assert carol_api.post(GROUPS, body, format="json").json()["state"] == "REGISTERED"
    assert carol_api.post(f"{GROUPS}sig-2/start/").json()["state"] == "STARTED"
    assert carol_api.post(f"{GROUPS}sig-2/stop/").json()["state"] == "STOPPED"
    assert carol_api.delete(f"{GROUPS}sig-2/").status_code == 204
    assert carol_api.get(f"{GROUPS}sig-2/").status_code == 404


def test_a_change_is_all_or_nothing(carol_api, group):
    answer = carol_api.patch(SIG, {"quota": 3, "weight": -1}, format="json")
    assert (answer.status_code, set(answer.json()["fields"])) == (400, {"weight"})
    assert carol_api.get(SIG).json()["quota"] is None
    assert carol_api.patch(SIG, {"quota": 3, "weight": 2}, format="json").json()["revision"] == 2


def test_weights_of_gpu_models_are_changed_by_the_groups_administrator(dave_api, group):
    assert dave_api.get(SIG).json()["gpu_weights"] == ""
    assert dave_api.patch(SIG, {"gpu_weights": "A100=4.0,T4=1"}, format="json").json()["gpu_weights"] == "A100=4, T4=1"
    answer = dave_api.patch(SIG, {"gpu_weights": "A100=0"}, format="json")
    assert (answer.status_code, answer.json()["fields"]["gpu_weights"]) == (
        400,
        ["The weight of 'A100' must be a number from 0.01 to 1000."],
    )
    assert dave_api.get(SIG).json()["gpu_weights"] == "A100=4, T4=1"


def test_a_preview_of_weights_says_which_models_are_not_there(carol_api, group):
    found = carol_api.post(f"{SIG}preview/", {"gpu_weights": "A100=4"}, format="json").json()
    assert found["changes"] == ["weights of GPU models from nothing to A100=4"]
    [note] = found["notes"]
    assert note == "No host of ComputeHostsGPU has a GPU of model A100: these weights have no effect."


def test_a_change_of_what_has_changed_meanwhile_is_a_conflict(carol_api, group):
    read = carol_api.get(SIG).json()["revision"]
    carol_api.patch(SIG, {"quota": 3}, format="json")
    answer = carol_api.patch(SIG, {"quota": 1, "revision": read}, format="json")
    assert (answer.status_code, answer.json()["code"]) == (409, "stale_group")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"parameters": {"SPARK_EGO_PRIORTY": 5}}, "parameters"),
        ({"parameters": {"SPARK_EGO_PRIORITY": 5}, "default_priority": 6}, "parameters"),
        ({"parameters": {"SPARK_EGO_PRIORITY": [5]}}, "parameters"),
        ({"parameters": "SPARK_EGO_PRIORITY=5"}, "parameters"),
        ({"policies": "fifo"}, "policies"),
        ({"policy": "hierarchy"}, "policy"),
        ({"members": ["nobody-of-this-name"]}, "members"),
    ],
)
def test_what_is_not_understood_is_named(carol_api, group, body, field):
    for address, send in ((SIG, carol_api.patch), (f"{SIG}preview/", carol_api.post)):
        answer = send(address, body, format="json")
        assert (answer.status_code, set(answer.json()["fields"])) == (400, {field}), answer.json()


def test_its_own_administrator_changes_its_policy_and_not_its_quota(dave_api, group):
    assert dave_api.patch(SIG, {"policy": "fifo"}, format="json").json()["policy"] == "fifo"
    refused = dave_api.patch(SIG, {"quota": 8}, format="json")
    assert (refused.status_code, set(refused.json()["fields"])) == (403, {"quota"})
    for send in (lambda: dave_api.delete(SIG), lambda: dave_api.post(f"{SIG}stop/"), lambda: dave_api.post(GROUPS, {})):
        assert send().status_code == 403


def test_others_read_what_they_may_use_and_change_nothing(alice, alice_api, bob_api, group):
    group.members.add(alice)
    assert [row["name"] for row in alice_api.get(GROUPS).json()["results"]] == ["sig-elastic"]
    assert alice_api.get(SIG).status_code == 200
    assert alice_api.patch(SIG, {"policy": "fifo"}, format="json").status_code == 403
    assert alice_api.post(f"{SIG}preview/", {"policy": "fifo"}, format="json").status_code == 403
    assert bob_api.get(GROUPS).json()["results"] == []
    for answer in (bob_api.get(SIG), bob_api.patch(SIG, {}, format="json"), bob_api.post(f"{SIG}preview/", {})):
        assert answer.status_code == 404


def test_a_preview_says_who_gains_and_writes_nothing(carol_api, group, alices_job: Job, bob: User, submission):
    actions.submit(actions.Submission(**{**submission, "name": "T2", "priority": 9000}), bob)
    seen = carol_api.post(f"{SIG}preview/", {"policy": "fifo"}, format="json").json()
    assert seen["changes"] == ["policy from fair share to first come, first served"]
    assert seen["text"] == "1 training waits longer, 1 training gains. 3 GPUs are reassigned."
    effects: list[dict[str, Any]] = seen["effects"]
    assert [(row["name"], row["what"], row["before_slots"], row["after_slots"]) for row in effects] == [
        ("T2", "waits", 3, 0),
        ("T1", "gains", 1, 4),
    ]
    assert InstanceGroup.objects.get().policy == "fairshare"


def test_a_preview_of_goodput_says_how_fast_trainings_would_be(
    carol_api, group: InstanceGroup, alices_job: Job, bob: User, submission
):
    actions.submit(actions.Submission(**{**submission, "name": "T2"}), bob)
    # One training that two GPUs make 1.9 times as fast, and one that they make slower.
    for name, seconds in (("T1", 0.005), ("T2", 0.2)):
        fitted = ThroughputParameters(0.0, 0.0015625, seconds, 0.0, seconds, 0.0, 1.0)
        JobProfile.objects.create(
            job=Job.objects.get(name=name), batch_size=64, parameters={"A": asdict(fitted)}, largest_ranks=4,
            at=timezone.now(),
        )  # fmt: skip
    seen = carol_api.post(f"{SIG}preview/", {"policy": "goodput"}, format="json").json()
    rows = {row["name"]: row for row in seen["effects"]}
    assert [(row["before_slots"], row["after_slots"]) for row in (rows["T2"], rows["T1"])] == [(2, 1), (2, 3)]
    assert rows["T2"]["after_goodput"] == pytest.approx(1 / 0.1)
    assert rows["T2"]["before_goodput"] == pytest.approx(1 / (0.05 + 0.2))
    for name, row in rows.items():
        known = carol_api.get(f"/api/v1/jobs/{Job.objects.get(name=name).pk}/goodput/").json()["sizes"]
        by_size = {size["gpus"]: size["goodput"] for size in known}
        assert row["before_goodput"] == pytest.approx(by_size[row["before_slots"]]), name
        assert row["after_goodput"] == pytest.approx(by_size[row["after_slots"]]), name
    work = [sum(row[f"{side}_goodput"] / 10 for row in rows.values()) for side in ("after", "before")]
    assert f"the work of {work[0]:.1f} GPUs that train alone instead of {work[1]:.1f}" in seen["text"]


def test_a_preview_names_strangers_to_nobody(dave_api, group, alices_job, bob, submission):
    actions.submit(actions.Submission(**{**submission, "name": "bobs-secret", "priority": 9000}), bob)
    seen = dave_api.post(f"{SIG}preview/", {"policy": "fifo"}, format="json").json()
    assert {row["name"] for row in seen["effects"]} == {"another user's training"}
    assert "bobs-secret" not in repr(seen)


def test_quotas_that_cannot_all_be_had_are_told(carol_api, group):
    InstanceGroupFactory(resource_group=group.resource_group, quota=3)
    seen = carol_api.post(f"{SIG}preview/", {"quota": 2}, format="json").json()
    [note] = seen["notes"]
    assert "ComputeHostsGPU are 5 GPUs" in note


def test_another_resource_group_moves_its_trainings(carol_api, group, alices_job):
    ResourceGroupFactory(name="empty", selection="static")
    seen = carol_api.post(f"{SIG}preview/", {"resource_group": "empty"}, format="json").json()
    assert [(row["name"], row["what"]) for row in seen["effects"]] == [("T1", "waits")]


def test_a_quota_of_one_group_shrinks_the_trainings_of_another(carol_api, group, alices_job, bob, submission):
    InstanceGroupFactory(name="vision", resource_group=group.resource_group)
    actions.submit(actions.Submission(**{**submission, "name": "T2", "instance_group": "vision"}), bob)
    seen = carol_api.post(f"{GROUPS}vision/preview/", {"quota": 3, "weight": 1}, format="json").json()
    assert [
        (row["name"], row["group"], row["what"], row["before_slots"], row["after_slots"]) for row in seen["effects"]
    ] == [
        ("T1", "sig-elastic", "shrinks", 2, 1),
        ("T2", "vision", "gains", 2, 3),
    ]
    assert seen["moves"] == 1
    answer = carol_api.post(f"{GROUPS}vision/preview/", {"quota": 3, "borrows": False}, format="json").json()
    assert {row["name"]: row["after_slots"] for row in answer["effects"]} == {"T1": 1, "T2": 3}


def test_what_a_viewer_may_not_change_is_not_offered(dave_api, group):
    dave = User.objects.get(username="dave")
    dave.groups.add(viewers())
    assert changeable_terms(dave, group) == frozenset()
    assert dave_api.patch(SIG, {"policy": "fifo"}, format="json").status_code == 403
