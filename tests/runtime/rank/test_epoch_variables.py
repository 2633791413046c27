"""Variables that a script keeps from epoch to epoch, in a process that begins the same epoch anew."""

import builtins
import math
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import pytest
from tidepool.torch.rank.epoch_variables import EpochVariables

LOSSES = [0.5, 0.4, 0.45, 0.6, 0.3, math.nan]


class Writer:
    def __init__(self, path: str, is_first: bool) -> None:
        self.path, self.is_first, self.lines = path, is_first, 0

    def write(self) -> None:
        self.lines += 1


@dataclass(frozen=True)
class Settings:
    name: str = "x"


class Odd:
    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)


class Fitted:
    weight = 2.0

    @property
    def score(self) -> float:
        raise RuntimeError("not fitted yet")

    @score.setter
    def score(self, value: float) -> None:
        pass


def script(variables: EpochVariables, epochs: Iterable[int], writer: Writer) -> list[tuple[Any, ...]]:
    """Return what it keeps as each epoch begins."""
    name: str | None = None
    best, waited, seen = math.inf, 0, []
    settings, odd = Settings(), Odd()
    for epoch in epochs:
        variables.begin(epoch)
        seen.append((best, waited, name, writer.lines, writer.path, writer.is_first))
        loss = LOSSES[epoch]
        if loss < best:
            best, waited, name = loss, 0, f"{settings.name}-{epoch}"
        else:
            waited += 1
        writer.write()
        assert odd is not None
    return seen


@pytest.mark.parametrize("epoch", [0, 1, 3, 5])
def test_a_process_that_begins_an_epoch_has_what_the_others_keep(epoch: int) -> None:
    first, second = EpochVariables(), EpochVariables()
    seen = script(first, range(epoch + 1), Writer("attempt-1/log", is_first=True))
    second.load_state_dict(first.state_dict())
    again = script(second, range(epoch, 6), Writer("attempt-2/log", is_first=False))

    assert again[0][:4] == seen[-1][:4]
    assert again[0][4:] == ("attempt-2/log", False), "what never changes is each process's own"
    whole = script(EpochVariables(), range(6), Writer("", is_first=True))
    assert [one[:4] for one in again] == [one[:4] for one in whole[epoch:]]


def test_what_is_received_of_another_epoch_changes_nothing() -> None:
    first, second = EpochVariables(), EpochVariables()
    script(first, range(4), Writer("", is_first=True))
    second.load_state_dict(first.state_dict())

    assert script(second, range(4, 6), Writer("", is_first=True))[0][:4] == (math.inf, 0, None, 0)


def test_a_value_that_has_come_back_to_its_first_one_is_carried() -> None:
    first, second = EpochVariables(), EpochVariables()
    script(first, range(5), Writer("", is_first=True))
    assert first.state_dict()["values"]["waited"] == ["int", "2"]
    script(first, [5], Writer("", is_first=True))
    second.load_state_dict(first.state_dict())
    assert "waited" in second.state_dict()["values"]


def test_a_property_that_cannot_be_read_is_left_out() -> None:
    variables, fitted, seen = EpochVariables(), Fitted(), 0.0
    for epoch in range(2):
        variables.begin(epoch)
        fitted.score = 0.5
        seen += fitted.weight
    assert seen == 4.0
    assert variables.state_dict()["values"] == {"seen": ["float", (2.0).hex()]}


def test_what_a_loop_has_replaced_is_not_kept_in_memory() -> None:
    """A copy of the variables would hold the newest batch of the epoch before."""
    variables, kept = EpochVariables(), []
    batch, count = None, 0
    for epoch in range(3):
        variables.begin(epoch)
        batch = Writer("", is_first=True)
        kept.append(weakref.ref(batch))
        count += 1
        assert [each() for each in kept] == [None] * epoch + [batch]
    assert count == 3


def test_a_checkpoint_between_two_epochs_has_what_is_kept_then() -> None:
    def epochs(variables: EpochVariables, numbers: Iterable[int], states: list[dict[str, Any]]) -> Iterator[int]:
        for number in numbers:
            variables.begin(number)
            yield number
            variables.end(number)
            states.append(variables.state_dict())

    # A generator of the runtime's, which is passed over in the search for the script's frame.
    epochs = FunctionType(epochs.__code__, {"__name__": "tidepool.torch", "__builtins__": builtins})

    def train(variables: EpochVariables, numbers: Iterable[int], states: list[dict[str, Any]]) -> list[float]:
        best, seen = math.inf, []
        for epoch in epochs(variables, numbers, states):
            seen.append(best)
            best = min(best, LOSSES[epoch])
        return seen

    states: list[dict[str, Any]] = []
    whole = train(EpochVariables(), range(4), states)
    for epoch in (1, 2, 3):
        resumed = EpochVariables()
        resumed.load_state_dict(states[epoch - 1])
        assert train(resumed, range(epoch, 4), []) == whole[epoch:]
