"""What a page says cannot be done is what the action refuses, state by state."""

from __future__ import annotations

import pytest
from django.utils import timezone

from core.errors import UserError
from jobs import actions
from jobs.actions.permissions import refusal, refusals_by_state
from jobs.states import TERMINAL, JobState
from tests.factories import JobFactory

ACTIONS = {"suspend": actions.suspend, "resume": actions.resume, "cancel": actions.cancel}
#: Asking again for what is so already is harmless, and needs no button.
HARMLESS = {("suspend", "SUSPENDED"), ("cancel", "CANCELLING"), ("cancel", "CANCELLED")}


@pytest.mark.django_db
@pytest.mark.parametrize("state", list(JobState))
@pytest.mark.parametrize("action", ACTIONS)
def test_the_page_refuses_what_the_action_refuses(action: str, state: JobState) -> None:
    job = JobFactory(state=state, finished_at=timezone.now() if state in TERMINAL else None)
    try:
        ACTIONS[action](job.pk, "alice")
        refused = False
    except UserError:
        refused = True

    assert bool(refusal(action, state)) == refused or (action, state.value) in HARMLESS


def test_every_state_and_action_is_said() -> None:
    said = refusals_by_state()

    assert set(said) == {state.value for state in JobState}
    assert all(set(row) == set(ACTIONS) for row in said.values())
