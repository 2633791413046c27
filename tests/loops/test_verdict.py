"""Verdicts on runs in which some ranks failed."""

from pathlib import Path
from unittest import mock

import pytest

from tests.loops.loop import Loop
from tests.loops.played import Played
from tests.loops.twins import Course
from tests.loops.verdict import judge
from tests.runtime.lab import Lab

REFUSED = {"kind": "Refusal", "message": "the processes hold different weights\nor buffers"}
LOOP = Loop("center", Path("center.py"), "differs", 1e-4, "weights or buffers")


def verdict(error: dict[str, str], loop: Loop = LOOP, *, finished: bool) -> str:
    """Return the kind of verdict on two ranks that began, of which the second one ended with the error."""
    lab = mock.create_autospec(Lab, instance=True)
    lab.journal.side_effect = lambda kind: [{}] if kind == "finished" and finished else []
    lab.founders.return_value, lab.steps.return_value = {"a.0.1", "a.1.2"}, [{"step": 1}, {"step": 2}]
    played = Played([lab], failures=[{"member_id": "a.1.2", "error": error, "code": 1}], survivors={"a.0.1"})
    return judge(loop, Course(2, [0], {}), played).kind


def test_a_training_that_one_rank_refuses_by_name_and_others_complete_is_refused() -> None:
    assert verdict(REFUSED, finished=True) == "refused"


@pytest.mark.parametrize(
    ("error", "finished"),
    [(REFUSED, False), ({"kind": "RuntimeError", "message": "no buffers"}, True)],
    ids=["it goes on", "another error"],
)
def test_it_is_wrong_where_it_goes_on_and_where_the_error_is_another(error: dict[str, str], finished: bool) -> None:
    assert verdict(error, finished=finished) == "WRONG"


def test_it_is_wrong_where_an_attempt_would_repeat_the_refusal() -> None:
    assert verdict({**REFUSED, "kind": "ValueError"}, finished=True) == "WRONG"
