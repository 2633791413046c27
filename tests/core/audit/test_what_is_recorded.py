"""Check that changes of shared or foreign things leave a line; what people do to their own trainings does not."""

import pytest
from django.contrib.auth.models import User

from core.errors import UserError
from core.models import AuditEntry
from datasets.actions import delete_dataset, delete_version
from jobs import actions
from jobs.actions.job_commands import JobChange, change_job
from jobs.models import Job
from jobs.states import JobState
from models_registry.actions import delete_model, delete_template
from tests.factories import (
    DatasetVersionFactory,
    JobFactory,
    ModelTemplateFactory,
    RegisteredModelVersionFactory,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def job(alice: User) -> Job:
    return JobFactory(owner=alice, name="T1")


def lines() -> list[tuple[str, str, str, str]]:
    return [(entry.actor, entry.verb, entry.kind, entry.name) for entry in AuditEntry.objects.order_by("id")]


def test_an_administrator_changes_anothers_training(job: Job) -> None:
    change_job(job.pk, JobChange(priority=9000, max_slots=4), "carol")

    entry = AuditEntry.objects.get()
    assert (entry.actor, entry.verb, entry.kind, entry.key, entry.name) == (
        "carol",
        "changed",
        "job",
        str(job.pk),
        "T1",
    )
    assert (entry.before, entry.after) == ({"priority": 5000, "max_slots": 8}, {"priority": 9000, "max_slots": 4})


def test_an_administrator_holds_back_and_stops_anothers_training(job: Job) -> None:
    actions.suspend(job.pk, "carol")
    actions.resume(job.pk, "carol")
    actions.cancel(job.pk, "carol")
    actions.cancel(job.pk, "carol")  # changes nothing

    assert lines() == [("carol", verb, "job", "T1") for verb in ("suspended", "resumed", "cancelled")]


def test_what_owners_do_to_their_own_trainings_is_in_the_trainings_history(job: Job) -> None:
    change_job(job.pk, JobChange(priority=9000), "alice")
    actions.suspend(job.pk, "alice")
    actions.resume(job.pk, "alice")
    actions.cancel(job.pk, "alice")

    assert lines() == []


def test_what_is_refused_is_not_written_down(alice: User, job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(state=JobState.FAILED, finished_at=job.submitted_at)
    for act in (actions.cancel, actions.suspend, actions.resume):
        with pytest.raises(UserError):
            act(job.pk, "carol")

    assert lines() == []


def test_deletions_say_whose_it_was(alice: User, carol: User) -> None:
    dataset = DatasetVersionFactory(dataset__owner=alice, dataset__name="digits", number=1).dataset
    delete_version(alice, DatasetVersionFactory(dataset=dataset, number=2))
    delete_dataset(carol, dataset)
    delete_model(RegisteredModelVersionFactory(model__owner=alice, model__name="cnn").model, carol)
    delete_template(ModelTemplateFactory(owner=alice, name="base"), carol)

    assert lines() == [
        ("alice", "deleted a version of", "dataset", "digits"),
        ("carol", "deleted", "dataset", "digits"),
        ("carol", "deleted", "model", "cnn"),
        ("carol", "deleted", "template", "base"),
    ]
    assert {entry.before["owner"] for entry in AuditEntry.objects.all()} == {"alice"}
