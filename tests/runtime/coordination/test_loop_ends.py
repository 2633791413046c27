"""When a training is over: event by event, without a process or a clock."""

import pytest
from tidepool.protocol import RankEnd, ShimJoin

from tests.runtime.coordination.test_membership import Story, member_id


def leave(
    story: Story, slot: int, *, code: int | None = None, signal: int | None = None, by_script: bool = False
) -> None:
    """The rank's connection closes, and its shim reports how it ended."""
    story.die(slot)
    end = RankEnd(member_id(slot), slot, code, signal, by_script, None)
    living = list(story.membership.ranks)
    ended = [end] if by_script or code == 0 else []
    story.note(story.membership.shim_joined(ShimJoin(1, 1, "a", living, ended), story.now))


def finished(story: Story) -> list[tuple[int, int]]:
    return [(record["step"], record["epoch"]) for record in story.records("finished")]


def test_a_training_is_over_when_the_loops_of_all_its_ranks_are() -> None:
    story = Story()
    story.train_on(0, 1)
    story.finish(0)
    assert finished(story) == [], "the first rank may have left its loop too early"
    story.finish(1)
    assert finished(story) == [(10, 2)]


def test_the_script_goes_on_after_its_loop() -> None:
    story = Story()
    story.train_on(0, 1)
    story.finish(0, 1, kind="trained")
    story.pass_time(900.0)
    assert finished(story) == []
    assert not story.records("no_progress"), "an evaluation after the training may take as long as it likes"
    story.finish(1)
    assert finished(story) == [(10, 2)]


def test_another_loop_may_follow() -> None:
    story = Story()
    story.train_on(0, 1)
    generation = story.membership.generation
    story.finish(0, 1, kind="trained")
    story.send("alive", 0, 1, generation=generation, operation=11)
    story.finish(0, step=20)
    assert finished(story) == [], "the other rank is in the second loop"
    story.finish(1, step=20)
    assert finished(story) == [(20, 2)]


@pytest.mark.parametrize("how", [{"code": 0}, {"code": 1, "by_script": True}, {"signal": 11, "by_script": True}])
def test_what_the_script_does_after_its_loop_costs_nothing_of_the_training(how: dict[str, int]) -> None:
    story = Story()
    story.train_on(0, 1)
    story.finish(0, 1, kind="trained")
    leave(story, 0, **how)
    assert finished(story) == [(10, 2)]
    leave(story, 1, **how)
    assert not story.records("lost")


def test_a_rank_that_is_killed_after_its_loop_has_not_finished() -> None:
    story = Story()
    story.train_on(0, 1)
    story.finish(0, 1, kind="trained")
    leave(story, 0, signal=9)
    assert finished(story) == []
    assert (1, "recover", story.membership.generation) in story.sent()
    story.send("switched", 1, generation=story.membership.generation)
    story.finish(1)
    assert finished(story) == [(10, 2)]


def test_a_lone_rank_that_is_killed_after_its_loop_is_lost() -> None:
    story = Story()
    story.train_on(0)
    story.finish(0, kind="trained")
    leave(story, 0, signal=9)
    assert story.records("lost")
    assert not finished(story)


def test_a_rank_whose_end_nobody_reports_counts_as_killed() -> None:
    story = Story()
    story.train_on(0)
    story.finish(0, kind="trained")
    story.die(0)
    story.pass_time(9.0)
    assert not story.records("lost")
    story.pass_time(2.0)
    assert story.records("lost")
    assert not finished(story)


def test_after_a_recovery_all_ranks_report_their_end_again() -> None:
    story = Story()
    story.train_on(0, 1, 2)
    story.finish(0, 1)
    story.die(2)
    generation = story.membership.generation
    story.send("switched", 0, 1, generation=generation)
    story.finish(0)
    assert finished(story) == []
    story.finish(1)
    assert finished(story) == [(10, 2)]


# --- the process that comes first ---


def test_one_rank_is_named_the_first_one_and_begins_though_another_is_ready_before_it() -> None:
    story = Story()
    story.want(0, 1, revision=1)
    assert story.membership.names_first(member_id(1))
    assert not story.membership.names_first(member_id(0))
    story.connect(0, 1)
    story.ready(0)
    assert story.sent() == []
    story.ready(1)
    assert story.sent() == [(1, "prepare", 1)]


def test_a_rank_that_comes_while_others_train_is_not_the_first_one() -> None:
    story = Story()
    story.train_on(0)
    assert not story.membership.names_first(member_id(1))


def test_the_death_of_the_named_one_makes_room_for_another() -> None:
    story = Story()
    story.want(0, 1, revision=1)
    assert story.membership.names_first(member_id(1))
    story.note(story.membership.shim_joined(ShimJoin(1, 1, "a", [member_id(0)]), story.now))
    story.connect(0)
    story.ready(0)
    assert story.sent() == [(0, "prepare", 1)]


def test_the_rank_of_a_plan_under_way_is_the_first_one() -> None:
    story = Story()
    story.want(0, 1, revision=1)
    story.connect(0, 1)
    story.ready(0)
    assert not story.membership.names_first(member_id(1))
    assert story.membership.names_first(member_id(0))


def test_a_training_whose_ranks_hold_different_weights_is_none() -> None:
    story = Story()
    story.train_on(0, 1)
    story.finish(0, kind="trained", digest="0 abc")
    story.finish(1, digest="0 abd")
    story.finish(0, digest="0 abc")
    assert finished(story) == []
    story.pass_time(1.0)
    [stopped] = story.records("no_progress")
    assert f"{member_id(1)} held other weights or buffers than {member_id(0)}" in stopped["text"]


def test_the_weights_of_an_earlier_loop_are_not_compared() -> None:
    story = Story()
    story.train_on(0, 1)
    story.finish(0, 1, kind="trained", digest="0 abc")
    story.finish(0, kind="trained", step=20, digest="0 abd")
    story.pass_time(1.0)
    assert not story.records("no_progress")
    story.finish(1, step=20, digest="0 abd")
    assert finished(story) == [(20, 2)]


@pytest.mark.parametrize("other", ["", "1 abd"])
def test_weights_that_the_script_changed_later_and_those_of_another_kind_of_device_are_not_compared(other: str) -> None:
    story = Story()
    story.train_on(0, 1)
    story.finish(0, digest="0 abc")
    story.finish(1, digest=other)
    assert finished(story) == [(10, 2)]
