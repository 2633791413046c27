"""Alerts about studies, and about trainings that are trials of one."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from alerts import actions
from alerts.alert_kinds import Kind
from alerts.loop import AlertLoop
from alerts.models import Channel
from jobs.control.transition import Why, record, transition
from jobs.messages import message
from jobs.models import Job
from jobs.states import JobState, Reason
from scheduling.plan import PlanReason
from studies.actions import pause, resume
from studies.control.changes import set_state
from studies.models import Study
from tests.alerts.receivers import Hook
from tests.example_study import example_study
from tests.factories import JobFactory
from tests.html import html_of

pytestmark = pytest.mark.django_db(transaction=True)
MINUTE = timedelta(minutes=1)
BEST = "Trial 1 is the best: its last test_accuracy, 96.4, is the highest (learning_rate 0.009, width 32)."


def study_of(owner: User) -> Study:
    now = timezone.now()
    done = JobFactory(owner=owner, state=JobState.SUCCEEDED, started_at=now, finished_at=now)
    return example_study(done, now)


def finish(study: Study) -> None:
    """Finish the study as the controller does."""
    set_state(study, Study.State.FINISHED, f"All 20 trials are over. {BEST}", only=[Study.State.RUNNING])


def pause_by_itself(study: Study, why: str) -> None:
    set_state(study, Study.State.PAUSED, why, only=[Study.State.RUNNING])


def titles(hook: Hook) -> list[str]:
    return [body["title"] for body in hook.bodies]


def test_a_study_that_is_done_is_told_once(
    hook: Hook, channel: Channel, alice: User, bob: User, loop: AlertLoop
) -> None:
    actions.add_rule(alice, channel.pk, Kind.STUDY_DONE)
    study, others = study_of(alice), study_of(bob)
    finish(study)
    finish(others)
    now = timezone.now()
    for seconds in range(3):
        loop.turn(now + timedelta(seconds=seconds))
    AlertLoop().turn(now + 2 * MINUTE)
    assert titles(hook) == [f"Study {study.pk} (Learning rates) is done"]
    [about] = hook.bodies[0]["alerts"]
    assert (about["kind"], about["job"], about["study"]) == ("study_done", None, study.pk)
    assert about["url"] == f"https://gpus.example.org/studies/{study.pk}/"
    assert about["text"] == f"All 20 trials are over. {BEST}\n{about['url']}"


def test_a_study_that_goes_on_and_is_done_again_is_told_again(
    hook: Hook, channel: Channel, alice: User, loop: AlertLoop
) -> None:
    actions.add_rule(alice, channel.pk, Kind.STUDY_DONE)
    study = study_of(alice)
    finish(study)
    set_state(study, Study.State.RUNNING, "Continues.", only=[Study.State.FINISHED], actor="alice")
    finish(study)
    now = timezone.now()
    # A channel gets one message in a turn.
    for seconds in (0, 1):
        loop.turn(now + timedelta(seconds=seconds))
    assert len(hook.bodies) == 2


def test_a_pause_is_told_with_its_sentence_unless_a_user_asked_for_it(
    hook: Hook, channel: Channel, alice: User, loop: AlertLoop
) -> None:
    actions.add_rule(alice, channel.pk, Kind.STUDY_PAUSED)
    study = study_of(alice)
    pause(alice, study.pk)
    loop.turn(timezone.now())
    assert hook.bodies == []
    resume(alice, study.pk)
    pause_by_itself(study, "Trial 5 cannot be submitted: the quota is used up.")
    loop.turn(timezone.now())
    assert titles(hook) == [f"Study {study.pk} (Learning rates) has paused"]
    assert hook.bodies[0]["text"].startswith(f"Trial 5 cannot be submitted: the quota is used up. {BEST}")


def test_an_administrator_is_told_of_a_groups_studies(
    hook: Hook, alice: User, admin_user: User, loop: AlertLoop
) -> None:
    study = study_of(alice)
    admins = actions.add_channel(admin_user, "hook", "webhook", hook.url).row
    actions.add_rule(admin_user, admins.pk, Kind.STUDY_DONE, study.instance_group_id)
    finish(study)
    loop.turn(timezone.now())
    assert len(hook.bodies) == 1


def trial_of(owner: User, state: str, **columns: object) -> Job:
    started = None if state == JobState.PENDING else timezone.now()
    return JobFactory(owner=owner, state=state, started_at=started, bundle=7, name="digits", **columns)


def test_ends_and_sizes_of_trials_are_no_alerts_but_failures_are(
    hook: Hook, channel: Channel, alice: User, loop: AlertLoop
) -> None:
    for kind in (Kind.DONE, Kind.TAKEN, Kind.FAILED):
        actions.add_rule(alice, channel.pk, kind)
    done, failed = trial_of(alice, JobState.RUNNING), trial_of(alice, JobState.RUNNING)
    record(done, Why(PlanReason.SHRUNK_FOR_FAIR_SHARE, message("submitted"), "scheduler"))
    transition(done, JobState.SUCCEEDED, Why(Reason.COMPLETED, message("submitted"), "x"), finished_at=timezone.now())
    transition(failed, JobState.FAILED, Why(Reason.EXIT_NONZERO, message("submitted"), "x"), finished_at=timezone.now())
    loop.turn(timezone.now())
    assert titles(hook) == [f"Training {failed.pk} (digits) failed"]


def test_a_study_waits_as_one_training_and_only_while_no_trial_has_gpus(
    hook: Hook, channel: Channel, alice: User, loop: AlertLoop
) -> None:
    actions.add_rule(alice, channel.pk, Kind.WAITS, minutes=10)
    now = timezone.now()
    training = trial_of(alice, JobState.RUNNING)
    first, _second = [trial_of(alice, JobState.PENDING, submitted_at=now - 11 * MINUTE) for _ in range(2)]
    loop.turn(now)
    assert hook.bodies == []
    transition(training, JobState.SUCCEEDED, Why(Reason.COMPLETED, message("submitted"), "x"), finished_at=now)
    loop.turn(now + MINUTE)
    assert titles(hook) == [f"Training {first.pk} (digits) has waited for 12 min 0 s"]


def test_the_page_names_studies(alice: User, alice_client: Client, hook: Hook, channel: Channel) -> None:
    loop = AlertLoop()
    actions.add_rule(alice, channel.pk, Kind.STUDY_DONE)
    loop.turn(timezone.now())
    study = study_of(alice)
    finish(study)
    loop.turn(timezone.now())
    page = html_of(alice_client.get("/alerts/"))
    assert "my studies" in page
    assert f'<a href="/studies/{study.pk}/">Study {study.pk} (Learning rates) is done</a>' in page
