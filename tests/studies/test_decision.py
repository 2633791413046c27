import pytest

from jobs.states import JobState
from studies.decision import Ending, Limits, Progress, ending_of, places, why_finished, why_paused

NO_LIMITS = Limits(trials=None, seconds=None, gpu_seconds=None)


def ending(state: JobState, **facts: object) -> Ending:
    given = {"metric": "loss", "value": None, "error": "", "is_script_error": False, "is_repeat": False, **facts}
    return ending_of(state, **given)  # type: ignore[arg-type]


def progress(**facts: object) -> Progress:
    return Progress(**{"counted": 0, "open": 0, "seconds": 0.0, "gpu_seconds": 0.0, **facts})  # type: ignore[arg-type]


def test_a_trial_with_a_number_is_complete() -> None:
    assert ending(JobState.SUCCEEDED, value=0.25) == Ending(value=0.25)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_a_number_fails_its_trial(value: float) -> None:
    assert ending(JobState.SUCCEEDED, value=value) == Ending(why="The last value of loss is not a number.")


def test_a_success_without_the_metric_is_an_error_of_the_script() -> None:
    found = ending(JobState.SUCCEEDED)
    assert (found.value, found.is_script_error, found.lacks_metric) == (None, True, True)
    assert found.why == "The training ended without a value of loss."


def test_a_lost_trial_is_repeated_once() -> None:
    assert ending(JobState.FAILED, error="Its host was lost.").is_repeated
    assert not ending(JobState.FAILED, error="Its host was lost.", is_repeat=True).is_repeated


def test_errors_of_the_script_and_users_stops_are_not_repeated() -> None:
    assert not ending(JobState.FAILED, error="ValueError: 3", is_script_error=True).is_repeated
    assert not ending(JobState.CANCELLED, error="Cancelled by alice.").is_repeated


@pytest.mark.parametrize(
    ("limits", "facts", "at_once", "left"),
    [
        (NO_LIMITS, {"open": 3}, 8, 5),
        (NO_LIMITS, {"open": 9}, 8, 0),
        (Limits(10, None, None), {"counted": 8, "open": 3}, 8, 2),
        (Limits(10, None, None), {"counted": 12, "open": 0}, 8, 0),
    ],
)
def test_places_keep_both_limits(limits: Limits, facts: dict[str, int], at_once: int, left: int) -> None:
    assert places(limits, progress(**facts), at_once) == left


@pytest.mark.parametrize(
    ("limits", "facts", "sentence"),
    [
        (Limits(12, None, None), {"counted": 12, "open": 1}, ""),
        (Limits(12, None, None), {"counted": 12}, "All 12 trials are over."),
        (Limits(1, None, None), {"counted": 1}, "Its 1 trial is over."),
        (Limits(None, 600.0, None), {"seconds": 600.0, "open": 4}, "Its time limit of 10 min 0 s is over."),
        (Limits(None, None, 1800.0), {"gpu_seconds": 1800.0, "open": 4}, "It has used its 0.5 GPU-hours."),
        (
            NO_LIMITS,
            {"exhausted": "It is used up."},
            "It is used up.",
        ),
        (NO_LIMITS, {"exhausted": "It is used up.", "open": 1}, ""),
        (NO_LIMITS, {"counted": 500}, ""),
    ],
)
def test_a_study_finishes_at_its_limits(limits: Limits, facts: dict[str, float], sentence: str) -> None:
    assert why_finished(limits, progress(**facts)) == sentence


def test_a_metric_that_nobody_reports_pauses_and_names_those_that_were() -> None:
    given = {"metric": "acc", "lacks_metric": True, "errors": []}
    assert why_paused(**given, reported=["accuracy", "loss"]) == "No trial reports acc. Reported were accuracy, loss."
    assert why_paused(**given, reported=[]) == "No trial reports acc. The script reported no metric at all."


def test_three_errors_of_the_script_pause_and_two_do_not() -> None:
    given = {"metric": "loss", "lacks_metric": False, "reported": []}
    assert why_paused(**given, errors=["KeyError: 'x'"] * 2) == ""
    said = why_paused(**given, errors=["KeyError: 'x'"] * 3)
    assert said == "3 trials in a row failed with an error of the script: KeyError: 'x'"
