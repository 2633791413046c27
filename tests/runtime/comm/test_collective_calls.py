"""Ranks that come to different collectives: each of them hears of both places, and none of them waits for ever."""

import sys
import threading
from functools import partial

import pytest
import torch
from tidepool.collective_calls import calls_differ, place_in_script
from tidepool.refusal import Refusal
from tidepool.torch.comm import gather
from tidepool.torch.comm.gather import call_of, gather_bytes, meet_in
from tidepool.torch.comm.process_group import CommunicationError, Group

from tests.runtime.groups import groups, together
from tests.waiting import wait_until


def refusal_of(group: Group, own: bytes, kind: str) -> str:
    with pytest.raises(Refusal) as raised:
        gather_bytes(group, own, kind)
    return str(raised.value)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_bytes_of_all_ranks_are_gathered_in_their_order(size: int) -> None:
    contents = [b"", b"one", b"\0" * 5000][:size]
    with groups(size) as members:
        for _ in range(2):
            found = together(*[partial(gather_bytes, one, contents[one.rank], "totals()") for one in members])
            assert found == [contents] * size
        assert [one.entered for one in members] == [(2, "totals()")] * size


@pytest.mark.parametrize("kinds", [["totals()", "from_first()"], ["totals()", "totals()", "from_first()"]])
def test_ranks_that_gather_different_things_are_refused_with_the_same_words(kinds: list[str]) -> None:
    with groups(len(kinds)) as members:
        work = [partial(refusal_of, one, b"12" * one.rank, kinds[one.rank]) for one in members]
        [words] = set(together(*work))
    first, last = ("rank 0", "rank 1") if len(kinds) == 2 else ("rank 0 and rank 1", "rank 2")
    assert f"{first} in totals() at " in words
    assert f"{last} in from_first() at " in words
    assert "test_collective_calls.py, line " in words


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("elements", [3, 300_000])
def test_who_gathers_while_the_others_sum_waits_and_can_be_released(size: int, elements: int) -> None:
    """Gloo would end the process where messages of another length come than a sum expects."""
    ended: list[str] = []

    def come_to(group: Group) -> None:
        try:
            if group.rank == 0:
                meet_in(group, "from_first()")
            else:
                group.enter("the gradients of a step")
                group.wait(group.all_reduce(torch.ones(elements)))
        except CommunicationError:
            ended.append(group.entered[1])

    with groups(size) as members:
        threads = [threading.Thread(target=come_to, args=(one,)) for one in members]
        for thread in threads:
            thread.start()
        wait_until(lambda: all(one.waiting_since is not None for one in members), lambda: "they do not wait")
        assert not ended
        for one in members:
            one.break_off()
        for thread in threads:
            thread.join(30.0)
    assert sorted(ended) == sorted(["from_first()", *["the gradients of a step"] * (size - 1)])


def test_the_place_is_the_innermost_line_of_the_script() -> None:
    found: list[str] = []

    class Probe(torch.nn.Module):
        def __getattr__(self, name: str) -> object:
            return super().__getattr__(name)

    torch.nn.Module.apply(Probe(), lambda _: found.append(place_in_script(sys._getframe(1))))
    assert found[0].startswith("tests/runtime/comm/test_collective_calls.py, line "), found
    assert place_in_script(None) == ""


def test_the_frames_of_a_thread_that_runs_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python may return another object in place of a frame that has ended meanwhile."""
    group = Group(1, 0, 2, entered=(1, "totals()"))
    with group.waiting():
        monkeypatch.setattr(sys, "_current_frames", lambda: {0: {}})
        assert call_of(group, 0) is None
        monkeypatch.setattr(sys, "_current_frames", lambda: {0: sys._getframe(2)})
        monkeypatch.setattr(gather, "WAITS_LONG_SECONDS", -1.0)
        call = call_of(group, 0)
    assert call is not None
    assert call.kind == "totals()"
    assert call.place.startswith("tests/runtime/comm/test_collective_calls.py, line ")


def test_each_call_is_named_once_with_all_of_its_ranks() -> None:
    sentence = calls_differ({"a.0.1": "x() at train.py, line 3", "a.1.2": "y()", "b.0.1": "y()"})
    assert "a.0.1 in x() at train.py, line 3 and a.1.2 and b.0.1 in y()" in sentence
