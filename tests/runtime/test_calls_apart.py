"""A training whose processes wait for each other in different calls is stopped, with both places in its error."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.lab import Lab
from tests.waiting import wait_until

SCRIPT = (Path(__file__).parent / "scripts" / "apart.py").read_text().splitlines()


def line_of(text: str) -> int:
    [number] = [number for number, line in enumerate(SCRIPT, 1) if text in line]
    return number


def stopped(lab: Lab) -> set[tuple[str, str]]:
    """Return kinds and messages of the ranks' errors, once the attempt is over."""
    wait_until(lambda: lab.journal("lost") and len(lab.exits()) == len(lab.started()), lab.story)
    assert not lab.journal("finished")
    assert len(lab.journal("generation_active")) <= 2, "it goes round in no circle"
    return {(end["error"]["kind"], end["error"]["message"]) for end in lab.exits().values()}


@pytest.mark.parametrize(("size", "arguments", "exact"), [
    (2, ["--call", "totals"], {}),
    (3, ["--call", "totals"], {"exactness": "bitwise", "virtual_ranks": 4}),
    (3, ["--call", "from_first"], {}),
    (2, ["--session", "--call", "sum_over"], {}),
])  # fmt: skip
def test_a_call_that_one_rank_makes_alone_stops_the_training(
    make_lab: Callable[..., Lab], size: int, arguments: list[str], exact: dict[str, Any]
) -> None:
    lab = make_lab("apart.py", arguments=arguments, min_slots=size, **exact)
    lab.size(size)
    [(kind, message)] = stopped(lab)
    call, line, step = {
        "totals": ("tidepool.torch.totals()", "else totals()", "mse_loss(net(features), targets).backward()"),
        "from_first": ("tidepool.torch.from_first()", "else totals()", "mse_loss(net(features), targets).backward()"),
        "sum_over": ("session.sum_over()", "session.sum_over(", "for step in session.steps"),
    }[arguments[-1]]
    assert kind == "CallsDiffer"
    assert f"in {call} at apart.py, line {line_of(line)}" in message
    assert f"in the sum of a step's gradients at apart.py, line {line_of(step)}" in message


def test_two_different_calls_stop_the_training(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab("apart.py", arguments=["--call", "both"], min_slots=3)
    lab.size(3)
    [(kind, message)] = stopped(lab)
    assert kind == "Refusal"
    assert f"in tidepool.torch.from_first() at apart.py, line {line_of('not is_odd') + 1}" in message
    assert f"in tidepool.torch.totals() at apart.py, line {line_of('else totals()')}" in message
