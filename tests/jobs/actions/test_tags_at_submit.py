"""A training has its tags from its submission on, whoever submits it in whichever way; lists follow as they change."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from core import live
from jobs import actions
from jobs.actions.tags import change_tags, parsed_tag_change
from jobs.models import Job
from jobs.topics import JOBS, jobs_topic_of
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit

pytestmark = pytest.mark.django_db


def names(job: Job) -> list[str]:
    return sorted(tag.name for tag in job.tags.all())


def test_tags_are_stored_as_they_are_filtered_by_and_a_clone_begins_without(submit: Submit, alice: User) -> None:
    job = submit(tags=["Baseline", "baseline", "lr:0.1"])
    assert names(job) == ["baseline", "lr:0.1"]
    assert names(actions.clone(job, alice)) == []


@pytest.mark.parametrize(
    ("tags", "sentence"),
    [(["two words"], "is not a valid tag"), ([f"tag{number}" for number in range(21)], "at most 20 tags, not 21")],
)
def test_what_is_no_tag_makes_no_training(submit: Submit, tags: list[str], sentence: str) -> None:
    with pytest.raises(actions.InvalidSubmission, match=sentence):
        submit(tags=tags)
    assert not Job.objects.exists()


def test_the_api_takes_them(cluster: Cluster, given: dict[str, Any], alice: User, client: Client) -> None:
    client.force_login(alice)
    made = client.post("/api/v1/jobs/", {**given, "tags": ["Baseline"]}, content_type="application/json")
    assert (made.status_code, made.json()["tags"]) == (201, ["baseline"])
    refused = client.post("/api/v1/jobs/", {**given, "tags": ["a b"]}, content_type="application/json")
    assert (refused.status_code, list(refused.json()["fields"])) == (400, ["tags"])


def test_lists_that_are_open_hear_of_a_change(submit: Submit, alice: User) -> None:
    job = submit()
    topics = [JOBS, jobs_topic_of(alice.pk)]
    before = live.current_seqs(topics)
    change_tags(job.pk, parsed_tag_change(["baseline"]), "alice")
    assert live.current_seqs(topics) == {topic: seq + 1 for topic, seq in before.items()}
    change_tags(job.pk, parsed_tag_change(["baseline"]), "alice")
    assert live.current_seqs(topics) == {topic: seq + 1 for topic, seq in before.items()}, "nothing has changed"
