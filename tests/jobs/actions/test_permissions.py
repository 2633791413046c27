"""Check that the action refuses what a page says cannot be done, state by state."""

import pytest
from django.utils import timezone

from jobs import actions
from jobs.actions.job_commands import JobChange, check_change
from jobs.permissions import BUTTONS, Refused, Verb, refusal, refusals_by_state
from jobs.states import TERMINAL, JobState
from tests.factories import JobFactory

ACTIONS = {Verb.SUSPEND: actions.suspend, Verb.RESUME: actions.resume, Verb.CANCEL: actions.cancel}
#: Asking again for what is so already is harmless, and needs no button.
HARMLESS = {("suspend", "SUSPENDED"), ("cancel", "CANCELLING"), ("cancel", "CANCELLED")}


@pytest.mark.django_db
@pytest.mark.parametrize("state", list(JobState))
@pytest.mark.parametrize("action", ACTIONS)
def test_the_page_refuses_what_the_action_refuses(action: Verb, state: JobState) -> None:
    job = JobFactory(state=state, finished_at=timezone.now() if state in TERMINAL else None)
    try:
        ACTIONS[action](job.pk, "alice")
        refused = None
    except Refused as error:
        refused = error.why

    assert refusal(action, state) == refused or (action, state.value) in HARMLESS


@pytest.mark.django_db
@pytest.mark.parametrize("state", list(JobState))
def test_a_change_is_refused_where_the_page_offers_none(state: JobState) -> None:
    job = JobFactory(state=state, finished_at=timezone.now() if state in TERMINAL else None)
    try:
        check_change(job, JobChange(priority=1))
        refused = None
    except Refused as error:
        refused = error.why

    assert refused == refusal(Verb.CHANGE, state)


def test_every_state_and_action_is_said() -> None:
    said = refusals_by_state()

    assert set(said) == {state.value for state in JobState}
    assert all(set(row) == set(BUTTONS) for row in said.values())
