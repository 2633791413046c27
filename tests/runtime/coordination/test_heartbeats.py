"""Tests that tell stuck ranks from slow ones: no process, no clock."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidepool.collective_calls import CollectiveCall
from tidepool.protocol import Join, Member, MemberMessage, ShimCommand, ShimJoin, host_of
from tidepool.rank_exits import CALLS_DIFFER, LOOPS_DIFFER, STALLED
from tidepool.torch.coordination.heartbeats import Heartbeats, Patience, Stop, Stuck
from tidepool.torch.coordination.loop_ends import LoopEnds
from tidepool.torch.coordination.membership import Membership

from tests.runtime.coordination.test_membership import Story, member_id

STUCK = 60.0
PATIENCE = Patience(STUCK, step=300.0, launch=1800.0)
NAMES = ["a", "b", "c"]


def heartbeat(operation: int = 7, waits: float | None = None, generation: int = 1, step: float = 0.1) -> MemberMessage:
    return MemberMessage("alive", generation, operation=operation, waits_seconds=waits, step_seconds=step)


def judged(
    heartbeats: dict[str, tuple[float, MemberMessage]], now: float = 1000.0, given_up: int = 0
) -> list[tuple[str, bool]]:
    """Return who is stuck, and whether for silence; `heartbeats`: how many seconds ago which heartbeat came."""
    watch = Heartbeats(PATIENCE)
    for _ in range(given_up):
        watch.give_up(Stuck("z", False, 0.0), 0.0)
    for name, (ago, said) in heartbeats.items():
        watch.record(name, said, now - ago)
    return [(stuck.member_id, stuck.silent) for stuck in watch.stuck(sorted(heartbeats), now)]


WAITS = heartbeat(waits=301.0)
CASES = {
    "nobody waits": ({"a": (0.5, heartbeat()), "b": (0.5, heartbeat())}, []),
    "all wait for each other": ({"a": (0.5, WAITS), "b": (0.5, WAITS)}, []),
    "one is busy, the other has waited too long": ({"a": (0.5, WAITS), "b": (0.5, heartbeat())}, [("b", False)]),
    "one is busy, the other has waited a while": ({"a": (0.5, heartbeat(waits=299.0)), "b": (0.5, heartbeat())}, []),
    "one is silent, the other has waited too long": (
        {"a": (0.5, heartbeat(waits=61.0)), "b": (61.5, heartbeat())},
        [("b", True)],
    ),
    "it fell silent while it waited too": ({"a": (0.5, WAITS), "b": (61.5, heartbeat(waits=2.0))}, [("b", True)]),
    "one is silent, nobody waits": ({"a": (0.5, heartbeat()), "b": (100.0, heartbeat())}, []),
    "one is silent for very long, nobody waits": ({"a": (0.5, heartbeat()), "b": (181.0, heartbeat())}, [("b", True)]),
    "alone and busy": ({"a": (0.5, heartbeat())}, []),
    "alone and silent": ({"a": (181.0, heartbeat())}, [("a", True)]),
    "a silent one's wait counts for nothing": ({"a": (100.0, WAITS), "b": (0.5, heartbeat())}, []),
    "two are busy": (
        {"a": (0.5, WAITS), "b": (0.5, heartbeat()), "c": (0.5, heartbeat())},
        [("b", False), ("c", False)],
    ),
    "one that has gone further kept nobody waiting": ({"a": (0.5, WAITS), "b": (0.5, heartbeat(operation=8))}, []),
    "one that has not heard of the next generation": (
        {"a": (0.5, heartbeat(waits=301.0, generation=2)), "b": (0.5, heartbeat(operation=8))},
        [("b", False)],
    ),
    "its first step may take long": ({"a": (0.5, WAITS), "b": (0.5, heartbeat(step=0.0))}, []),
    "its first step takes for ever": (
        {"a": (0.5, heartbeat(waits=601.0)), "b": (0.5, heartbeat(step=0.0))},
        [("b", False)],
    ),
    "silent in its first step": ({"a": (0.5, heartbeat(waits=61.0)), "b": (61.5, heartbeat(step=0.0))}, [("b", True)]),
    "steps are long": ({"a": (0.5, heartbeat(waits=599.0, step=60.0)), "b": (0.5, heartbeat(step=60.0))}, []),
    "steps are long, this one is longer": (
        {"a": (0.5, heartbeat(waits=601.0, step=60.0)), "b": (0.5, heartbeat(step=60.0))},
        [("b", False)],
    ),
    "one receives a large state, its sender computes": (
        {"a": (0.5, heartbeat(operation=0, waits=100.0)), "b": (0.5, heartbeat())},
        [],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_who_is_stuck(case: str) -> None:
    heartbeats, expected = CASES[case]
    assert judged(heartbeats) == expected


@pytest.mark.parametrize(("waits", "given_up", "found"), [(301, 0, True), (1199, 1, False), (1201, 1, True)])
def test_a_busy_rank_has_longer_once_another_was_given_up_for_it(waits: int, given_up: int, found: bool) -> None:
    heartbeats = {"a": (0.5, heartbeat(waits=float(waits))), "b": (0.5, heartbeat())}
    assert bool(judged(heartbeats, given_up=given_up)) is found


def test_nobody_is_blamed_for_our_own_sleep() -> None:
    watch = Heartbeats(PATIENCE)
    for name in NAMES:
        watch.record(name, heartbeat(waits=1.0 if name == "a" else None), 100.0)
    watch.look(100.0)
    watch.look(4000.0)
    assert watch.stuck(NAMES, 4000.0) == []
    for second in range(4000, 4182):
        watch.look(float(second))
    assert len(watch.stuck(NAMES, 4181.5)) == 3, "from then on time counts again"


def test_a_training_that_makes_no_step_is_stopped_with_words_about_it() -> None:
    watch, ends = Heartbeats(PATIENCE), LoopEnds()
    for name, waits in (("a", None), ("b", 0.0)):
        watch.record(name, heartbeat(operation=7, waits=waits), 100.0)

    for now in (399.0, 401.0):
        for name in ("a", "b"):
            watch.record(name, heartbeat(operation=7, waits=90.0), now)
        if now < 400.0:
            assert watch.judge(["a", "b"], ends, 1, now) == []
    stop = watch.judge(["a", "b"], ends, 1, 401.0)
    assert isinstance(stop, Stop)
    assert (stop.error, stop.why.partition(". ")[0]) == (STALLED, "no step for 301 s: all ranks wait for each other")
    watch.record("a", heartbeat(operation=8), 410.0)
    assert watch.judge(["a", "b"], ends, 1, 420.0) == []


def test_a_rank_that_may_be_to_blame_is_given_up_before_the_training_is_stopped() -> None:
    watch, ends = Heartbeats(PATIENCE), LoopEnds()
    for name in ("a", "b"):
        watch.record(name, heartbeat(), 100.0)

    def verdict(now: float) -> list[Stuck] | Stop:
        watch.record("a", heartbeat(waits=now - 105.0), now)
        watch.record("b", heartbeat(), now)
        return watch.judge(["a", "b"], ends, 1, now)

    assert verdict(404.0) == []
    [stuck] = verdict(406.0) or [None]
    assert isinstance(stuck, Stuck)
    watch.give_up(stuck, 406.0)
    assert verdict(1005.0) == [], "the next one has longer"
    assert isinstance(verdict(1007.0), Stop)


def test_before_its_first_step_a_training_has_the_time_of_a_launch() -> None:
    watch, ends = Heartbeats(PATIENCE), LoopEnds()
    watch.record("a", heartbeat(operation=0, step=0.0), 100.0)
    for now, stops in ((1899.0, False), (1901.0, True)):
        watch.record("a", heartbeat(operation=0, step=0.0), now)
        assert isinstance(watch.judge(["a"], ends, 1, now), Stop) is stops


PARTED = {
    "one waits for another whose loop is over": ({"a": 7}, {"b": heartbeat(waits=11.0)}, True),
    "it has not waited for long": ({"a": 7}, {"b": heartbeat(waits=9.0)}, False),
    "it makes its last step": ({"a": 7}, {"b": heartbeat(operation=6, waits=11.0)}, False),
    "it computes": ({"a": 7}, {"b": heartbeat()}, False),
    "a third one computes": ({"a": 7}, {"b": heartbeat(waits=11.0), "c": heartbeat()}, False),
    "two wait": ({"a": 7}, {"b": heartbeat(waits=11.0), "c": heartbeat(waits=12.0)}, True),
    "all loops are over": ({"a": 7, "b": 7}, {}, False),
    "another generation waits to form": ({}, {"b": heartbeat(waits=11.0)}, False),
}


@pytest.mark.parametrize("case", PARTED)
def test_ranks_that_wait_for_one_whose_loop_is_over_stop_the_training(case: str) -> None:
    over, going_on, stops = PARTED[case]
    watch, ends = Heartbeats(PATIENCE), LoopEnds()
    for name, operation in over.items():
        watch.record(name, heartbeat(operation=operation), 1000.0)
        ends.note(name, MemberMessage("finished", 1, operation=operation))
    for name, message in going_on.items():
        watch.record(name, message, 1000.0)

    verdict = watch.judge([*over, *going_on], ends, 1, 1000.0)
    assert isinstance(verdict, Stop) is stops
    if isinstance(verdict, Stop):
        assert verdict.error == LOOPS_DIFFER
        assert f"the training loop has ended in a, and goes on in {', '.join(going_on)}" in verdict.why


def waits_in(number: int, kind: str, *, generation: int = 1, line: int = 3) -> MemberMessage:
    call = CollectiveCall(number, kind, f"train.py, line {line}")
    return MemberMessage("alive", generation, operation=7, waits_seconds=2.0, step_seconds=0.1, call=call)


APART = {
    "both sum gradients": ({"a": waits_in(5, "a step"), "b": waits_in(5, "a step", line=4)}, False),
    "one gathers while the other makes a step": ({"a": waits_in(5, "a step"), "b": waits_in(5, "totals()")}, True),
    "one has come out of the step by now": ({"a": waits_in(5, "a step"), "b": waits_in(6, "totals()")}, False),
    "one has switched": ({"a": waits_in(5, "a step"), "b": waits_in(5, "totals()", generation=2)}, False),
    "one computes": ({"a": heartbeat(), "b": waits_in(5, "totals()")}, False),
    "a third one computes": (
        {"a": waits_in(5, "a step"), "b": waits_in(5, "totals()"), "c": heartbeat(operation=7)},
        True,
    ),
}


@pytest.mark.parametrize("case", APART)
def test_ranks_that_wait_for_each_other_in_different_calls_stop_the_training(case: str) -> None:
    heartbeats, stops = APART[case]
    watch = Heartbeats(PATIENCE)
    for name, message in heartbeats.items():
        watch.record(name, message, 1000.0)

    verdict = watch.judge([*heartbeats], LoopEnds(), 1, 1000.0)
    assert isinstance(verdict, Stop) is stops
    if isinstance(verdict, Stop):
        assert verdict.error == CALLS_DIFFER
        assert "a in a step at train.py, line 3 and b in totals() at train.py, line 3" in verdict.why


def test_where_a_rank_waits_for_one_whose_loop_is_over_is_told() -> None:
    watch, ends = Heartbeats(PATIENCE), LoopEnds()
    watch.record("a", heartbeat(operation=7), 1000.0)
    ends.note("a", MemberMessage("finished", 1, operation=7))
    call = CollectiveCall(5, "totals()", "train.py, line 3")
    watch.record("b", msgspec.structs.replace(heartbeat(operation=7, waits=11.0), call=call), 1000.0)
    verdict = watch.judge(["a", "b"], ends, 1, 1000.0)
    assert isinstance(verdict, Stop)
    assert "b waits in totals() at train.py, line 3." in verdict.why


@settings(deadline=None)
@given(st.data())
def test_only_who_hangs_is_blamed_and_soon(data: st.DataObject) -> None:
    """Three ranks of uneven speed, whose heartbeats come late; one of them hangs or is stopped at some operation."""
    hangs_at = data.draw(st.integers(2, 6), "operation at which it hangs")
    culprit = data.draw(st.sampled_from(NAMES), "who hangs")
    silent = data.draw(st.booleans(), "stopped")
    paces = st.floats(0.1, 50.0)
    arrivals: dict[str, list[float]] = {name: [] for name in NAMES}
    begun = 0.0
    released = [0.0]
    for _ in range(hangs_at):
        for name in NAMES:
            arrivals[name].append(begun + data.draw(paces))
        begun = max(arrivals[name][-1] for name in NAMES)
        released.append(begun)
    stopped_at = begun
    lateness = {name: data.draw(st.floats(0.0, 0.9)) for name in NAMES}

    def said(name: str, at: float) -> MemberMessage:
        done = sum(1 for moment in released[1:] if moment <= at)
        arrived = arrivals[name][done] if done < hangs_at else begun + 1.0
        waiting = arrived <= at and not (name == culprit and done == hangs_at)
        return heartbeat(operation=done, waits=at - arrived if waiting else None, step=1.0)

    watch, found = Heartbeats(Patience(STUCK, step=STUCK)), []
    for name in NAMES:
        watch.note_alive(name, 0.0)
    now = 0.0
    while not found and now < stopped_at + 2 * STUCK:
        now += 1.0
        for name in NAMES:
            at = now - lateness[name]
            if not (silent and name == culprit and at > stopped_at) and at > 0:
                watch.record(name, said(name, at), now)
        watch.look(now)
        found = watch.stuck(NAMES, now)

    assert [stuck.member_id for stuck in found] == [culprit]
    assert found[0].silent is silent
    assert now - stopped_at < STUCK + 5.0


# --- the coordinator's actions ------------


def beating(*slots: int) -> Story:
    story = Story()
    story.membership = Membership("127.0.0.1", 29500, 1, PATIENCE)
    story.train_on(*slots)
    return story


def pass_seconds(story: Story, seconds: int, waiting: tuple[int, ...], busy: tuple[int, ...] = ()) -> None:
    generation = story.membership.generation
    for second in range(1, seconds + 1):
        story.pass_time(1.0)
        for slot in waiting:
            said = {"generation": generation, "operation": 3, "waits_seconds": float(second), "step_seconds": 0.1}
            story.send("alive", slot, **said)
        for slot in busy:
            story.send("alive", slot, generation=generation, operation=3, step_seconds=0.1)


def fences(story: Story) -> list[tuple[str, str]]:
    return [
        (action.member_id, host_of(action.member_id)) for action in story.actions if isinstance(action, ShimCommand)
    ]


def test_the_survivors_of_a_stuck_rank_go_on_and_its_shim_kills_it() -> None:
    story = beating(0, 1, 2)
    pass_seconds(story, 62, waiting=(0, 2))

    assert [record["member_id"] for record in story.records("rank_stuck")] == [member_id(1)]
    assert fences(story) == [(member_id(1), "a")]
    assert sorted(story.sent())[:2] == [(0, "recover", 3), (1, "fenced", 0)]
    story.connect(1, generation=2)
    assert story.sent() == [(1, "fenced", 0)], "it is history for good"


def test_two_stuck_ranks_cost_one_recovery() -> None:
    story = beating(0, 1, 2)
    generation = story.membership.generation
    pass_seconds(story, 302, waiting=(0,), busy=(1, 2))
    assert len(story.records("rank_stuck")) == 2
    assert [told for told in story.sent() if told[1] == "recover"] == [(0, "recover", generation + 1)]


def test_a_lone_silent_rank_is_killed_and_the_training_lost() -> None:
    story = beating(0)
    for _ in range(182):
        story.pass_time(1.0)
    assert story.records("rank_stuck")
    assert story.records("lost")
    assert fences(story) == [(member_id(0), "a")]


def test_a_lone_busy_rank_is_stopped_at_the_deadline_with_its_stack() -> None:
    story = beating(0)
    pass_seconds(story, 299, waiting=(), busy=(0,))
    assert not story.records("no_progress")
    pass_seconds(story, 10, waiting=(), busy=(0,))
    [record] = story.records("no_progress")
    assert record["text"].startswith(f"no step for 301 s: the script is busy in {member_id(0)}.")
    [command] = [action for action in story.actions if isinstance(action, ShimCommand)]
    assert (command.kind, command.error, command.why) == ("abort", STALLED, record["text"])
    assert story.records("lost")


def test_a_shim_that_comes_back_is_told_of_ranks_that_were_given_up_meanwhile() -> None:
    story = beating(0, 1)
    pass_seconds(story, 62, waiting=(0,))
    story.actions.clear()
    told = story.membership.shim_joined(ShimJoin(1, 1, "a", [member_id(0), member_id(1)]), story.now)
    assert told == [ShimCommand("fence", member_id(1), story.membership.fenced[member_id(1)])]


def test_a_joiner_that_does_not_prepare_is_killed_too() -> None:
    story = beating(0)
    story.want(0, 1, revision=2)
    story.connect(1)
    story.ready(1)
    story.pass_time(31.0)
    assert fences(story) == [(member_id(1), "a")]
    assert member_id(1) not in story.membership.ranks, "it is no candidate for the next plan"


def test_a_stuck_rank_is_none_of_the_next_coordinators_business() -> None:
    story = Story()
    story.membership.fenced = {member_id(1): "it has not been heard of for 61 s"}
    story.note(story.membership.retarget([Member("a", 0)], 1, story.now))
    story.note(story.membership.joined(Join(1, 1, member_id(1), "a", 1, 1, 3, False), story.now))
    assert story.sent() == [(1, "fenced", 0)]
