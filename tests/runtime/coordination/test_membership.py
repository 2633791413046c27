"""Tests of the coordinator's decisions, event by event: no process, no clock."""

from typing import Any

import pytest
from tidepool.protocol import (
    Entry,
    GenerationPlan,
    Join,
    Member,
    MemberMessage,
    PlanMember,
    ShimJoin,
    entry_to_json,
)
from tidepool.torch.coordination.membership import PREPARE_TIMEOUT_SECONDS, Membership
from tidepool.torch.coordination.roster import JOIN_WINDOW_SECONDS, Action, Send


class Story:
    """Feeds a Membership and remembers what it answered."""

    def __init__(self, min_slots: int = 1) -> None:
        self.membership = Membership("127.0.0.1", 29500, min_slots)
        self.now = 100.0
        self.actions: list[Action] = []

    def want(self, *slots: int, revision: int) -> None:
        self.note(self.membership.retarget([Member("a", slot) for slot in slots], revision, self.now))

    def connect(self, *slots: int, generation: int = 0, revision: int = 0) -> None:
        for slot in slots:
            join = Join(1, 1, member_id(slot), "a", slot, 1000 + slot, generation, False, revision)
            self.note(self.membership.joined(join, self.now))

    def ready(self, *slots: int) -> None:
        for slot in slots:
            self.send("ready", slot)

    def send(self, kind: Any, *slots: int, **values: Any) -> None:
        for slot in slots:
            self.note(self.membership.received(member_id(slot), MemberMessage(kind, **values), self.now))

    def die(self, *slots: int) -> None:
        for slot in slots:
            self.note(self.membership.disconnected(member_id(slot), self.now))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.note(self.membership.ticked(self.now))

    def finish(self, *slots: int, kind: str = "finished", step: int = 10, digest: str = "") -> None:
        """The loops of these ranks are over, in the active generation."""
        assert self.membership.active is not None
        place = {"generation": self.membership.active.generation, "step": step, "epoch": 2, "operation": step}
        self.send(kind, *slots, **place, digest=digest)

    def sent(self) -> list[tuple[int, str, int]]:
        """(slot, kind, generation) of what ranks were told of generations since the last look."""
        tells = [action for action in self.actions if isinstance(action, Send)]
        self.actions = [action for action in self.actions if not isinstance(action, Send)]
        return [
            (int(tell.member_id.split(".")[1]), tell.message.kind, tell.message.generation)
            for tell in tells
            if tell.message.kind != "checkpointed"
        ]

    def records(self, kind: str) -> list[dict[str, Any]]:
        entries = [entry_to_json(action) for action in self.actions if isinstance(action, Entry)]
        return [data for name, data in entries if name == kind]

    def train_on(self, *slots: int) -> None:
        """Bring it to an active generation of exactly these slots."""
        self.want(*slots, revision=1)
        self.connect(*slots)
        self.ready(*slots)
        while not self._trains_on(slots):
            self.carry_out()
        self.sent()

    def carry_out(self) -> None:
        """Every member does what the pending plan asks of it."""
        pending = self.membership.pending
        assert pending is not None
        generation = pending.plan.generation
        for name in sorted(pending.unprepared):
            self.send("prepared", int(name.split(".")[1]), generation=generation)
        for member in pending.plan.members:
            self.send("switched", member.slot, generation=generation)

    def _trains_on(self, slots: tuple[int, ...]) -> bool:
        active = self.membership.active
        return active is not None and {member.slot for member in active.members} == set(slots)

    def note(self, actions: list[Action]) -> None:
        self.actions += actions


def member_id(slot: int) -> str:
    return f"a.{slot}.1"


def test_starts_with_the_minimum_as_soon_as_it_is_ready() -> None:
    story = Story()
    story.want(0, 1, 2, 3, revision=1)
    story.connect(0, 1, 2, 3)
    story.ready(2)

    assert story.sent() == [(2, "prepare", 1)]
    story.send("prepared", 2, generation=1)
    assert story.sent() == [(2, "commit", 1)]


def test_waits_for_the_minimum() -> None:
    story = Story(min_slots=2)
    story.want(0, 1, revision=1)
    story.connect(0, 1)
    story.ready(0)
    assert story.sent() == []
    story.ready(1)
    assert story.sent() == [(0, "prepare", 1), (1, "prepare", 1)]


def test_one_that_left_before_it_was_counted_on_is_not_waited_for() -> None:
    """Let its word of leaving come after a recovery was planned with it: it is gone, and will never meet the others."""
    story = Story()
    story.train_on(0, 1, 2)
    story.want(0, 1, revision=2)
    story.send("prepared", 0, 1, 2, generation=story.membership.generation)
    story.sent()
    story.die(1)
    assert (2, "recover", story.membership.generation) in story.sent()
    story.send("left", 2, generation=story.membership.generation - 1)
    assert story.sent()[-1] == (0, "recover", story.membership.generation)
    assert [member.slot for member in story.membership.pending.plan.members] == [0]  # type: ignore[union-attr]
    story.die(2)
    story.send("switched", 0, generation=story.membership.generation)
    assert [member.slot for member in story.membership.active.members] == [0]  # type: ignore[union-attr]


def test_grows_once_by_all_that_are_starting() -> None:
    story = Story()
    story.train_on(0)
    story.want(0, 1, 2, revision=2)
    story.connect(1, 2)
    story.ready(1)
    assert story.sent() == [], "another one is about to be ready"
    story.ready(2)
    assert story.sent() == [(0, "prepare", 2), (1, "prepare", 2), (2, "prepare", 2)]


def test_does_not_wait_for_a_slow_starter_for_ever() -> None:
    story = Story()
    story.train_on(0)
    story.want(0, 1, 2, revision=2)
    story.connect(1)
    story.ready(1)
    story.pass_time(JOIN_WINDOW_SECONDS + 0.1)
    assert story.sent() == [(0, "prepare", 2), (1, "prepare", 2)]


def test_commits_only_when_all_have_prepared_and_tells_only_those_who_train() -> None:
    story = Story()
    story.train_on(0)
    story.want(0, 1, revision=2)
    story.connect(1)
    story.ready(1)
    story.sent()
    story.send("prepared", 0, generation=2)
    assert story.sent() == []
    story.send("prepared", 1, generation=2)
    assert story.sent() == [(0, "commit", 2)]


def test_a_leaver_prepares_too_and_is_no_member() -> None:
    story = Story()
    story.train_on(0, 1)
    story.want(1, revision=2)
    assert story.sent() == [(1, "prepare", 3), (0, "prepare", 3)]
    story.carry_out()
    story.send("left", 0, generation=3)
    story.die(0)

    assert story.records("generation_active")[-1]["world_size"] == 1
    assert not story.records("generation_abandoned")


def test_an_older_desired_changes_nothing() -> None:
    story = Story()
    story.train_on(0, 1)
    story.want(0, revision=0)
    assert story.sent() == []


def test_a_joiner_that_dies_voids_the_plan_and_the_others_join_anew() -> None:
    story = Story()
    story.train_on(0)
    story.want(0, 1, 2, revision=2)
    story.connect(1, 2)
    story.ready(1, 2)
    story.sent()
    story.die(2)
    assert (0, "abandon", 2) in story.sent()
    story.pass_time(JOIN_WINDOW_SECONDS + 0.1)
    assert story.sent() == [(0, "prepare", 3), (1, "prepare", 3)]


def test_survivors_recover_at_once_when_a_member_dies() -> None:
    story = Story()
    story.train_on(0, 1, 2)
    generation = story.membership.generation
    story.die(0)
    assert story.sent() == [(1, "recover", generation + 1), (2, "recover", generation + 1)]
    story.die(1)
    assert (2, "recover", generation + 2) in story.sent()


def test_death_during_a_committed_switch_sends_joiners_back_to_waiting() -> None:
    story = Story()
    story.train_on(0, 1)
    story.want(0, 1, 2, revision=2)
    story.connect(2)
    story.ready(2)
    for slot in (0, 1, 2):
        story.send("prepared", slot, generation=3)
    story.sent()
    story.die(1)
    assert sorted(story.sent()) == [(0, "recover", 4), (2, "abandon", 3)]


def test_the_death_of_the_last_holder_ends_the_attempt() -> None:
    story = Story()
    story.train_on(0)
    story.want(0, 1, revision=2)
    story.connect(1)
    story.die(0)
    assert story.records("lost")
    assert story.sent() == [(1, "fenced", 0)]
    story.connect(2)
    assert story.sent() == [(2, "fenced", 0)]


def test_who_does_not_prepare_in_time_is_ended() -> None:
    story = Story()
    story.train_on(0)
    story.want(0, 1, revision=2)
    story.connect(1)
    story.ready(1)
    story.send("prepared", 0, generation=2)
    story.sent()
    story.pass_time(PREPARE_TIMEOUT_SECONDS + 1)
    assert (1, "fenced", 0) in story.sent()


def test_the_end_sends_joiners_away_and_lets_members_go() -> None:
    story = Story()
    story.train_on(0, 1)
    story.connect(2, revision=5)
    story.finish(0, 1)
    assert sorted(story.sent()) == [(0, "finished", 0), (1, "finished", 0), (2, "stop", 0)]
    story.die(0, 1, 2)
    assert story.sent() == []


@pytest.mark.parametrize(("started_for", "dismissed"), [(1, True), (2, True), (3, False)])
def test_a_rank_whose_slot_was_given_back_before_it_joined_is_sent_away(started_for: int, dismissed: bool) -> None:
    story = Story()
    story.train_on(0)
    story.want(0, revision=2)
    story.connect(1, revision=started_for)
    assert ((1, "stop", 0) in story.sent()) is dismissed


def test_the_next_coordinator_waits_for_the_members_before_it_plans() -> None:
    story = Story()
    members = [PlanMember(member_id(0), "a", 0, True), PlanMember(member_id(1), "a", 1, True)]
    plan = GenerationPlan(4, members, "127.0.0.1", 1, 1, "resize")
    story.membership.restore({4: plan}, 4, 1, story.now)
    story.want(0, revision=2)
    story.connect(0, generation=4)
    assert story.sent() == [], "rank 1 may still come back"
    story.connect(1, generation=4)
    assert story.sent() == [(0, "prepare", 5), (1, "prepare", 5)]


def test_the_next_coordinator_recovers_without_those_who_do_not_come_back() -> None:
    story = Story()
    members = [PlanMember(member_id(0), "a", 0, True), PlanMember(member_id(1), "a", 1, True)]
    story.membership.restore({4: GenerationPlan(4, members, "127.0.0.1", 1, 1, "resize")}, 4, 1, story.now)
    story.connect(0, generation=4)
    story.pass_time(60)
    assert (0, "recover", 5) in story.sent()


def test_the_next_coordinator_believes_ranks_that_switched_unseen() -> None:
    story = Story()
    two = [PlanMember(member_id(0), "a", 0, True), PlanMember(member_id(1), "a", 1, True)]
    plans = {
        4: GenerationPlan(4, two, "127.0.0.1", 1, 1, "resize"),
        5: GenerationPlan(5, two[:1], "127.0.0.1", 1, 2, "resize"),
    }
    story.membership.restore(plans, 4, 2, story.now)
    story.connect(0, generation=5)
    assert story.membership.active == plans[5]
    assert story.membership.succession.awaited == {}


def restored(*active: int, planned: dict[int, list[int]]) -> Story:
    """The next coordinator after one that left these plans; `active`: generations whose beginning it recorded."""
    story = Story()
    plans = {
        generation: GenerationPlan(
            generation, [PlanMember(member_id(slot), "a", slot, True) for slot in slots], "127.0.0.1", 1, 1, "resize"
        )
        for generation, slots in planned.items()
    }
    story.membership.restore(plans, max(active, default=0), 1, story.now)
    return story


def test_the_next_coordinator_voids_a_plan_that_nobody_has_switched_to() -> None:
    story = restored(4, planned={4: [0], 5: [0, 1]})
    story.want(0, 1, revision=1)
    story.connect(1)
    assert story.sent() == []
    story.connect(0, generation=4)
    assert story.sent() == [(1, "abandon", 5), (0, "recover", 6)], "rank 1 may wait in the group of generation 5"
    story.connect(2)
    assert story.sent() == [(2, "abandon", 5)]


def test_the_next_coordinator_writes_down_a_switch_that_its_predecessor_missed() -> None:
    story = restored(4, planned={4: [0], 5: [0, 1]})
    story.connect(0, 1, generation=5)
    story.send("switched", 0, generation=5, step=7)
    story.send("switched", 1, generation=5, step=7)
    assert [record["step"] for record in story.records("generation_active")] == [7]


def test_the_next_coordinator_waits_for_a_rank_that_may_have_begun_unseen() -> None:
    story = restored(planned={1: [0]})
    story.want(0, 1, revision=1)
    story.connect(1)
    story.ready(1)
    assert story.sent() == [], "rank 0 may be training: a second beginning would be another training"
    story.connect(0, generation=1)
    assert story.sent() == [(0, "prepare", 2), (1, "prepare", 2)]


def test_the_next_coordinator_recovers_only_when_it_knows_who_lives() -> None:
    story = restored(4, planned={4: [0, 1, 2]})
    story.connect(0, 1, generation=4)
    story.die(1)
    assert story.sent() == [], "rank 2 may still come back, and must not be left behind"
    story.connect(2, generation=4)
    assert story.sent() == [(0, "recover", 5), (2, "recover", 5)]


def test_a_finished_training_is_not_lost_when_its_ranks_have_gone() -> None:
    story = restored(4, planned={4: [0, 1]})
    story.membership.finished = True
    story.pass_time(60)
    assert not story.records("lost")


def test_a_rank_that_comes_back_after_the_others_went_on_is_fenced() -> None:
    story = Story()
    story.train_on(0, 1)
    generation = story.membership.generation
    story.die(1)
    story.carry_out()
    story.sent()
    story.connect(1, generation=generation)
    assert story.sent() == [(1, "fenced", 0)]


def test_a_joiner_that_still_receives_the_state_hands_nothing_on() -> None:
    story = Story()
    story.train_on(0, 1)
    story.want(0, 1, 2, revision=2)
    story.connect(2)
    story.ready(2)
    for slot in (0, 1, 2):
        story.send("prepared", slot, generation=3)
    story.send("switched", 0, generation=3)
    story.sent()
    story.die(1)
    assert sorted(story.sent()) == [(0, "recover", 4), (2, "abandon", 3)]
    story.send("switched", 0, generation=4)
    story.pass_time(JOIN_WINDOW_SECONDS + 0.1)
    assert story.sent() == [(0, "prepare", 5), (2, "prepare", 5)], "it was no leaver: it gets another turn"


def test_a_failure_while_a_switch_is_committed_is_no_old_news() -> None:
    story = Story()
    story.train_on(0, 1)
    story.want(0, revision=2)
    for slot in (0, 1):
        story.send("prepared", slot, generation=3)
    story.sent()
    story.send("broken", 1, generation=2)
    assert (0, "recover", 4) in story.sent()


def test_who_reports_a_failure_after_the_end_is_told_of_the_end() -> None:
    story = Story()
    story.train_on(0, 1)
    story.finish(0, 1)
    story.sent()
    story.send("broken", 1, generation=2)
    assert story.sent() == [(1, "finished", 0)]


def test_a_leaver_that_has_not_said_goodbye_is_no_joiner_of_the_next_change() -> None:
    story = Story()
    story.train_on(0, 1)
    story.want(0, revision=2)
    story.send("prepared", 0, 1, generation=3)
    story.send("switched", 0, generation=3)
    story.sent()
    story.want(0, 1, revision=3)
    assert story.sent() == [], "rank 1 leaves: its successor in the slot will join"
    story.send("broken", 1, generation=2)
    assert story.sent() == [(1, "stop", 0)], "its last step failed for it alone"


def test_a_change_that_cannot_be_made_is_tried_again_later_each_time() -> None:
    story = Story()
    story.train_on(0)
    story.want(0, 1, revision=2)
    story.connect(1)
    story.ready(1)
    waits = []
    for _ in range(8):
        story.sent()
        story.send("unprepared", 1, generation=story.membership.generation, error="refused")
        assert (0, "prepare", story.membership.generation + 1) not in story.sent()
        begun = story.now
        while not any(told[1] == "prepare" for told in story.sent()):
            story.pass_time(0.25)
        waits.append(story.now - begun)
    assert waits == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0]
    story.carry_out()
    assert story.membership.backoff.pause_seconds == 0


def test_the_next_coordinator_learns_from_shims_who_died_meanwhile() -> None:
    story = restored(4, planned={4: [0, 1]})
    story.connect(0, generation=4)
    assert story.sent() == [], "rank 1 may still come back"
    story.note(story.membership.shim_joined(ShimJoin(1, 1, "b", []), story.now))
    assert story.sent() == [], "another host's shim does not know"
    story.note(story.membership.shim_joined(ShimJoin(1, 1, "a", [member_id(0)]), story.now))
    assert story.sent() == [(0, "recover", 5)]


def test_the_next_coordinator_awaits_no_rank_of_a_predecessors_host_that_is_gone() -> None:
    story = Story()
    members = [PlanMember(member_id(0), "a", 0, True), PlanMember("b.0.1", "b", 0, True)]
    story.membership.restore({4: GenerationPlan(4, members, "127.0.0.1", 1, 1, "resize")}, 4, 1, story.now)
    story.membership.succession.give_up("b")
    story.connect(0, generation=4)
    assert (0, "recover", 5) in story.sent(), "without a pause"


def test_who_is_on_a_host_that_is_gone_is_not_awaited_in_a_later_generation_either() -> None:
    story = Story()
    two = [PlanMember(member_id(0), "a", 0, True), PlanMember("b.0.1", "b", 0, True)]
    plans = {
        4: GenerationPlan(4, two[:1], "127.0.0.1", 1, 1, "resize"),
        5: GenerationPlan(5, two, "127.0.0.1", 1, 1, "resize"),
    }
    story.membership.restore(plans, 4, 1, story.now)
    story.membership.succession.give_up("b")
    story.connect(0, generation=5)
    assert story.membership.succession.awaited == {}
