import pytest

from jobs.states import TERMINAL, JobState
from wmla.job_names import FINAL_WORDS, Dialect, state_word, states_behind

DIALECTS = [Dialect.OWN, Dialect.ON_PREM, Dialect.CLOUD_PAK]


@pytest.mark.parametrize("state", sorted(set(JobState) - TERMINAL))
def test_a_living_job_has_no_word_that_ends_a_loop(state: JobState) -> None:
    """Check the words that loops of notebooks go on at, one by one."""
    assert state_word(state, Dialect.ON_PREM) in {"SUBMITTED", "RUNNING"}
    assert state_word(state, Dialect.CLOUD_PAK) in {"PENDING_CRD_SCHEDULER", "SUBMITTED", "RUNNING"}


def test_a_job_that_is_over_says_how() -> None:
    words = {state: [state_word(state, dialect) for dialect in DIALECTS] for state in TERMINAL}
    assert words == {
        JobState.SUCCEEDED: ["FINISHED"] * 3,
        JobState.CANCELLED: ["KILLED"] * 3,
        JobState.FAILED: ["ERROR", "FAILED", "ERROR"],
    }
    assert {word for each in words.values() for word in each} == set(FINAL_WORDS)


def test_waiting_again_is_waiting() -> None:
    assert [state_word(JobState.PENDING, dialect) for dialect in DIALECTS] == [
        "PENDING_CRD_SCHEDULER",
        "SUBMITTED",
        "PENDING_CRD_SCHEDULER",
    ]


def test_a_word_asks_for_every_state_that_shows_it() -> None:
    assert states_behind("RUNNING") == {JobState.RUNNING, JobState.PREEMPTING, JobState.CANCELLING}
    assert states_behind("ERROR") == states_behind("FAILED") == {JobState.FAILED}
    assert states_behind("DANCING") == frozenset()
