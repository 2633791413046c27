"""Tests of the coordinator's decisions about checkpoints and halts, event by event: no process, no clock."""

import msgspec
import pytest
from tidepool.protocol import WrittenCheckpoint
from tidepool.torch.coordination.roster import Publish, Send

from tests.runtime.coordination.test_membership import Story, member_id

#: A rank's message about files that it has written.
WRITTEN = WrittenCheckpoint(size_bytes=3, sha256="0" * 64)


def publishing(story: Story) -> list[str]:
    """Publish the checkpoints that are due since the last look, and return whose they are."""
    found = [action for action in story.actions if isinstance(action, Publish)]
    story.actions = [action for action in story.actions if not isinstance(action, Publish)]
    for action in found:
        story.note(story.membership.published(action.message, f"checkpoint/step-{action.message.step}", story.now))
    return [action.member_id for action in found]


def test_the_checkpoint_of_one_who_trains_is_published_once() -> None:
    story = Story()
    story.train_on(0, 1)
    story.send("checkpoint", 0, step=5, written=WRITTEN)
    assert publishing(story) == [member_id(0)]
    story.send("checkpoint", 0, step=5, written=WRITTEN)
    assert publishing(story) == [], "its word came again: the answer was lost"
    assert [record["step"] for record in story.records("checkpoint")] == [5]
    answers = [action for action in story.actions if isinstance(action, Send) and action.message.kind == "checkpointed"]
    assert {answer.member_id for answer in answers if answer.message.step == 5} == {member_id(0), member_id(1)}


@pytest.mark.parametrize("case", ["older", "left", "not begun", "finished"])
def test_the_checkpoint_of_a_past_that_is_over_is_refused(case: str) -> None:
    story = Story()
    story.train_on(0, 1)
    writer = 0
    if case == "older":
        story.send("checkpoint", 1, step=9, written=WRITTEN)
        publishing(story)
    elif case == "left":
        story.want(1, revision=2)
        story.carry_out()
    elif case == "not begun":
        story.connect(2)
        writer = 2
    else:
        story.finish(0, 1)
    story.send("checkpoint", writer, step=5, written=WRITTEN)
    assert publishing(story) == []
    refused = [action for action in story.actions if isinstance(action, Send)][-1]
    assert (refused.member_id, refused.message.kind, refused.message.step) == (
        member_id(writer),
        "checkpoint_refused",
        5,
    )


# --- halting ---------------------------------------------------------------------------------------------------------


def halt(story: Story, revision: int = 9) -> None:
    members = story.membership.target
    story.note(story.membership.retarget(members, revision, story.now, halt=True))


def prepare_halt(story: Story, *slots: int) -> int:
    generation = story.membership.generation
    assert [(slot, "prepare", generation) for slot in slots] == story.sent()
    story.send("prepared", *slots, generation=generation)
    assert [(slot, "commit", generation) for slot in slots] == story.sent()
    return generation


def test_all_halt_together_and_end_once_the_state_is_saved() -> None:
    story = Story()
    story.train_on(0, 1)
    halt(story)
    generation = prepare_halt(story, 0, 1)
    story.send("checkpoint", 0, step=5, written=WRITTEN)
    publishing(story)
    assert story.sent() == [], "one that was under way before"
    story.send("checkpoint", 0, step=6, written=msgspec.structs.replace(WRITTEN, halt=generation))
    publishing(story)
    assert sorted(story.sent()) == [(0, "stop", 0), (1, "stop", 0)]
    assert [record["step"] for record in story.records("halted")] == [6]
    story.die(0, 1)
    assert not story.records("lost")
    story.connect(2)
    assert story.sent() == [(2, "stop", 0)], "whoever comes late is not needed"


def test_a_halt_before_anything_trains_ends_it_at_once() -> None:
    story = Story()
    story.want(0, revision=1)
    story.connect(0)
    story.sent()
    halt(story)
    assert (0, "stop", 0) in story.sent()
    assert len(story.records("lost")) == 1


def test_the_step_of_the_halt_may_be_saved_already() -> None:
    story = Story()
    story.train_on(0)
    halt(story)
    generation = prepare_halt(story, 0)
    story.send("checkpoint", 0, step=6, written=WRITTEN)
    story.send("checkpoint", 0, step=6, written=msgspec.structs.replace(WRITTEN, halt=generation))
    publishing(story)
    story.send("checkpoint", 0, step=6, written=msgspec.structs.replace(WRITTEN, halt=generation))
    assert (0, "stop", 0) in story.sent()


def test_a_death_during_the_halt_is_recovered_from_and_the_survivors_halt_again() -> None:
    story = Story()
    story.train_on(0, 1)
    halt(story)
    first = prepare_halt(story, 0, 1)
    story.die(0)
    assert story.sent() == [(1, "recover", first + 1)]
    story.send("checkpoint", 1, step=6, written=msgspec.structs.replace(WRITTEN, halt=first))
    publishing(story)
    assert not story.records("halted"), "the others of that halt are gone"
    story.send("switched", 1, generation=first + 1)
    second = prepare_halt(story, 1)
    story.send("checkpoint", 1, step=7, written=msgspec.structs.replace(WRITTEN, halt=second))
    publishing(story)
    assert [record["step"] for record in story.records("halted")] == [7]


def test_a_halt_voids_a_resize_that_is_not_committed_and_waits_for_one_that_is() -> None:
    story = Story()
    story.train_on(0)
    story.want(0, 1, revision=2)
    story.connect(1)
    story.ready(1)
    generation = story.membership.generation
    story.sent()
    halt(story)
    assert (1, "abandon", generation) in story.sent()

    story = Story()
    story.train_on(0)
    story.want(0, 1, revision=2)
    story.connect(1)
    story.ready(1)
    generation = story.membership.generation
    story.send("prepared", 0, 1, generation=generation)
    story.sent()
    halt(story)
    assert story.sent() == []
    story.send("switched", 0, 1, generation=generation)
    prepare_halt(story, 0, 1)
