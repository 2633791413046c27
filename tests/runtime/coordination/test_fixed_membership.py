"""The gang's decisions, without any I/O."""

import pytest
from tidepool.env import RankContext
from tidepool.gang import SharedGpuError, torchrun_environment
from tidepool.protocol import (
    CoordinatorMessage,
    Entry,
    GenerationPlan,
    Join,
    LaunchSpec,
    Member,
    MemberMessage,
    PlanMember,
    entry_to_json,
)
from tidepool.shim_slots import SlotGpus
from tidepool.torch.coordination.fixed_membership import FixedMembership
from tidepool.torch.coordination.roster import Action, Send

PLACES = [("b", 1), ("a", 3), ("b", 0), ("a", 2)]
MEMBER_IDS = ["b.1.1", "a.3.1", "b.0.1", "a.2.1"]
#: Host by host, in the order in which the target names the hosts.
ORDER = ["b.0.1", "b.1.1", "a.2.1", "a.3.1"]


def join(member_id: str) -> Join:
    host, slot, _ = member_id.split(".")
    return Join(1, 1, member_id, host, int(slot), 100, 0, ready=False, gang=True)


def ready(member_id: str) -> MemberMessage:
    return MemberMessage("ready", meeting=(f"10.0.0.{ord(member_id[0])}", 4000 + int(member_id[2])))


def gang(*member_ids: str) -> FixedMembership:
    membership = FixedMembership(len(PLACES))
    membership.retarget([Member(*place) for place in PLACES], 1, 0.0)
    for member_id in member_ids:
        membership.joined(join(member_id), 0.0)
        membership.received(member_id, ready(member_id), 0.0)
    return membership


def told(actions: list[Action]) -> dict[str, CoordinatorMessage]:
    return {action.member_id: action.message for action in actions if isinstance(action, Send)}


def recorded(actions: list[Action]) -> list[str]:
    return [entry_to_json(action)[0] for action in actions if isinstance(action, Entry)]


def test_nobody_begins_before_all_are_ready() -> None:
    membership = gang(*MEMBER_IDS[:3])
    assert membership.plan is None
    assert told(membership.joined(join(MEMBER_IDS[3]), 1.0)) == {}
    actions = membership.received(MEMBER_IDS[3], ready(MEMBER_IDS[3]), 2.0)
    assert recorded(actions) == ["generation_planned"]
    plan = told(actions)[MEMBER_IDS[0]].plan
    assert plan is not None
    assert [member.member_id for member in plan.members] == ORDER
    assert (plan.generation, plan.store_address, plan.store_port) == (1, "10.0.0.98", 4000), "rank 0 lets them meet"
    assert set(told(actions)) == set(MEMBER_IDS)


def test_a_rank_that_dies_before_is_waited_for() -> None:
    membership = gang(*MEMBER_IDS[:3])
    membership.disconnected(MEMBER_IDS[0], 1.0)
    membership.joined(join(MEMBER_IDS[3]), 1.0)
    membership.received(MEMBER_IDS[3], ready(MEMBER_IDS[3]), 1.0)
    assert membership.plan is None


def test_the_generation_is_active_once_all_run_the_script() -> None:
    membership = gang(*MEMBER_IDS)
    for member_id in MEMBER_IDS[:3]:
        assert membership.received(member_id, MemberMessage("switched", 1), 3.0) == []
    actions = membership.received(MEMBER_IDS[3], MemberMessage("switched", 1), 4.0)
    assert recorded(actions) == ["generation_active"]
    [active] = [entry_to_json(action)[1] for action in actions if isinstance(action, Entry)]
    assert (active["world_size"], [member["member_id"] for member in active["members"]]) == (4, ORDER)
    assert membership.received(MEMBER_IDS[3], MemberMessage("switched", 1), 5.0) == [], "once only"


def test_a_death_is_no_reason_to_plan_anew() -> None:
    membership = gang(*MEMBER_IDS)
    assert membership.disconnected(MEMBER_IDS[1], 5.0) == []
    assert membership.ticked(100.0) == []
    assert (membership.finished, membership.lost) == (False, False)


def test_one_that_comes_later_is_no_member() -> None:
    membership = gang(*MEMBER_IDS)
    assert told(membership.joined(join("a.3.2"), 9.0))["a.3.2"].kind == "fenced"


def test_a_target_of_another_size_forms_no_gang() -> None:
    membership = gang(*MEMBER_IDS[:3])
    membership.retarget([Member(*place) for place in PLACES[:3]], 2, 1.0)
    assert membership.plan is None


def test_a_new_coordinator_sends_the_plan_to_those_that_had_not_got_it() -> None:
    before = gang(*MEMBER_IDS)
    assert before.plan is not None
    membership = FixedMembership(len(PLACES))
    restored = GenerationPlan(1, before.plan.members, "", 0, 1, "start")
    membership.restore({1: restored}, 0, 1, 0.0)
    membership.retarget([Member(*place) for place in PLACES], 1, 0.0)

    membership.joined(join("a.3.1"), 1.0)
    assert told(membership.received("a.3.1", ready("a.3.1"), 1.0)) == {}, "where they meet only rank 0 knows"
    membership.joined(join("b.0.1"), 1.0)
    answers = told(membership.received("b.0.1", ready("b.0.1"), 1.0))
    assert set(answers) == {"a.3.1", "b.0.1"}
    plan = answers["a.3.1"].plan
    assert plan is not None
    assert plan.store_port == 4000
    for member_id in ("b.1.1", "a.2.1"):
        membership.joined(join(member_id), 2.0)
        membership.received(member_id, ready(member_id), 2.0)
        assert recorded(membership.received(member_id, MemberMessage("switched", 1), 2.0)) == []
    membership.received("a.3.1", MemberMessage("switched", 1), 3.0)
    last = membership.received("b.0.1", MemberMessage("switched", 1), 3.0)
    assert recorded(last) == ["generation_active"]


@pytest.mark.parametrize(
    ("member_id", "rank", "local_rank", "group_rank", "devices"),
    [("b.0.1", 0, 0, 0, "0,1"), ("b.1.1", 1, 1, 0, "0,1"), ("a.2.1", 2, 0, 1, "2,3"), ("a.3.1", 3, 1, 1, "2,3")],
)
def test_numbers_and_devices_are_as_torchrun_counts_them(
    member_id: str, rank: int, local_rank: int, group_rank: int, devices: str
) -> None:
    launch = LaunchSpec("/f", "/c", "train.py", [], "/d", {}, [], 4, 4, None, 0, "sum", engine="fixed")
    host, slot, _ = member_id.split(".")
    context = RankContext(5, 2, member_id, host, int(slot), "10.0.0.1", launch)
    members = [PlanMember(name, name[0], int(name[2]), holder=True) for name in ORDER]
    plan = GenerationPlan(1, members, "10.0.0.98", 4000, 1, "start")

    values = torchrun_environment(plan, context, gpus=SlotGpus())
    found = [values[name] for name in ("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")]
    assert found == [str(rank), str(local_rank), str(group_rank), "4", "2"]
    assert values["CUDA_VISIBLE_DEVICES"] == devices, "its device is the one that LOCAL_RANK picks"
    assert (values["MASTER_ADDR"], values["MASTER_PORT"]) == ("10.0.0.98", "4000")
    assert values["TORCHELASTIC_RESTART_COUNT"] == "1"
    assert "CUDA_VISIBLE_DEVICES" not in torchrun_environment(plan, context, gpus=None)


def test_two_plain_processes_on_one_gpu_are_refused_and_two_on_two_are_not() -> None:
    launch = LaunchSpec("/f", "/c", "train.py", [], "/d", {}, [], 2, 2, None, 0, "sum", engine="fixed")
    context = RankContext(5, 1, "a.0.1", "a", 0, "10.0.0.1", launch)

    def on_slots(*slots: int) -> GenerationPlan:
        members = [PlanMember(f"a.{slot}.1", "a", slot, holder=True) for slot in slots]
        return GenerationPlan(1, members, "10.0.0.98", 4000, 1, "start")

    with pytest.raises(SharedGpuError, match="2 slots per GPU"):
        torchrun_environment(on_slots(0, 1), context, gpus=SlotGpus(2))
    assert torchrun_environment(on_slots(0, 3), context, gpus=SlotGpus(2))["CUDA_VISIBLE_DEVICES"] == "0,1"
    whole = SlotGpus(uuids=("GPU-a", "GPU-b"))
    assert torchrun_environment(on_slots(0, 1), context, whole)["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    with pytest.raises(SharedGpuError, match="divided by MIG"):
        torchrun_environment(on_slots(0, 1), context, SlotGpus(uuids=("MIG-a", "MIG-b")))


def test_one_process_holds_all_places_of_its_host() -> None:
    membership = FixedMembership(3, is_one_process=True)
    membership.retarget([Member("a", slot) for slot in (5, 3, 4)], 1, 0.0)
    membership.joined(join("a.3.1"), 0.0)
    actions = membership.received("a.3.1", ready("a.3.1"), 1.0)
    assert [action.member_id for action in actions if isinstance(action, Send)] == ["a.3.1"], "it is told once"
    assert membership.plan is not None
    assert [(one.member_id, one.slot) for one in membership.plan.members] == [("a.3.1", slot) for slot in (3, 4, 5)]
    assert recorded(membership.received("a.3.1", MemberMessage("switched", 1), 2.0)) == ["generation_active"]
