"""Through the whole product: scripts that fail, each in another way: a job says why and where, and does not go on."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.journey.conftest import fresh_home
from tests.journey.running_stack import RunningStack, free_port
from tests.journey.training import MODELS, Training, register_model

pytestmark = pytest.mark.journey

SIZE = 2
SCRIPT = (MODELS / "faulty" / "train.py").read_text().splitlines()
#: Failure of a script -> reason code, kind of error and message of its job.
FAILURES = {
    "error": ("EXIT_NONZERO", "RuntimeError", "these are bad labels"),
    "exit": ("EXIT_NONZERO", "Exit", "the process ended with code 3"),
    "crash": ("EXIT_NONZERO", "SIGSEGV", "the process was ended by SIGSEGV: segmentation fault"),
    "memory": ("OUT_OF_MEMORY", "MemoryError", "no room for the activations"),
}


@pytest.fixture(scope="module")
def trainings(stack: RunningStack) -> Iterator[dict[str, Training]]:
    """One training for each way to fail, when they are over; four fit at a time."""
    with stack.api() as api:
        register_model(stack.home, api, "faulty")
        flag = "has-failed-once"
        trainings = {
            how: Training(
                *(api, stack.home, how),
                model="faulty",
                min_slots=SIZE,
                max_slots=SIZE,
                **{"fails-by": how, "flag": flag},
            )
            for how in (*FAILURES, "once")
        }
        for training in trainings.values():
            training.wait_until_over()
        yield trainings


@pytest.mark.parametrize("how", FAILURES)
def test_a_script_that_always_fails_ends_its_job_with_the_cause(trainings: dict[str, Training], how: str) -> None:
    now = trainings[how].now
    reason, kind, message = FAILURES[how]
    assert (now["state"], now["reason"]["code"]) == ("FAILED", reason), now
    assert (now["error"]["kind"], now["error"]["message"]) == (kind, message)
    assert message in now["reason"]["text"]
    assert now["step"] == 5, "as far as it got"


@pytest.mark.parametrize("how", [how for how in FAILURES if how != "exit"])
def test_a_traceback_names_the_file_and_the_line(trainings: dict[str, Training], how: str) -> None:
    [line] = [number for number, text in enumerate(SCRIPT, 1) if text.endswith(f"# {how}")]
    traceback = trainings[how].now["error"]["traceback"]
    file = trainings[how].folder / "_submitted_code" / "faulty" / "train.py"
    assert f'File "{file}", line {line}' in traceback, traceback


def test_an_exit_leaves_no_traceback(trainings: dict[str, Training]) -> None:
    assert trainings["exit"].now["error"]["traceback"] == ""


@pytest.mark.parametrize("how", FAILURES)
def test_it_is_tried_twice_and_not_again(trainings: dict[str, Training], how: str) -> None:
    training = trainings[how]
    now = training.now
    assert now["reason"]["params"]["attempts"] == 2
    assert now["attempt"] <= 2
    assert "twice" in now["error"]["tried"] or "Each of 2 attempts" in now["error"]["tried"]
    assert len(listed(training, "ranks")) <= SIZE * now["attempt"], "no rank is started again in between"
    states = [event["new"] for event in listed(training, "events") if event["old"] != event["new"]]
    assert states.count("FAILED") == 1
    assert states.count("STARTING") == now["attempt"]


def test_an_error_that_does_not_come_again_costs_nothing(trainings: dict[str, Training]) -> None:
    training = trainings["once"]
    now = training.now
    assert (now["state"], now["attempt"], now["error"]) == ("SUCCEEDED", 1, None), now
    assert [record["step"] for record in training.lines("metrics.jsonl", 1)] == list(range(1, 17))
    errors = [rank["exit"]["error"] for rank in listed(training, "ranks") if rank["exit"] and rank["exit"]["error"]]
    assert [error["kind"] for error in errors] == ["ValueError"], "one rank, once"
    assert "sample 13 could not be read" in errors[0]["message"]


def listed(training: Training, what: str) -> list[dict[str, Any]]:
    return list(training.api.get(f"jobs/{training.id}/{what}/").raise_for_status().json()["results"])


@pytest.mark.long
def test_a_script_that_never_comes_to_its_training_fails_its_job_with_the_place_where_it_hung() -> None:
    shape = ("--hosts", "1", "--slots-per-host", str(SIZE))
    with fresh_home() as home:
        stack = RunningStack(home, free_port(), shape, settings={"TIDEPOOL_LAUNCH_SECONDS": "10"})
        stack.start()
        with stack.api() as api:
            register_model(stack.home, api, "faulty")
            training = Training(api, home, "late", model="faulty", max_slots=SIZE, **{"fails-by": "never-training"})
            training.wait_until_over()
            now, ranks = training.now, listed(training, "ranks")
        stack.stop()
    assert (now["state"], now["reason"]["code"], now["error"]["kind"]) == ("FAILED", "LAUNCH_TIMEOUT", "LaunchTimeout")
    assert "after 10 s the script had not come to session.epochs()" in now["reason"]["text"]
    assert "TIDEPOOL_LAUNCH_SECONDS" in now["error"]["message"]
    [line] = [number for number, text in enumerate(SCRIPT, 1) if text.endswith("# never-training")]
    assert f'train.py", line {line}' in now["error"]["traceback"]
    assert now["reason"]["params"]["attempts"] == 2
    assert {rank["exit"]["error"]["kind"] for rank in ranks} == {"LaunchTimeout"}
