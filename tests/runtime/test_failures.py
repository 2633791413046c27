"""Deaths at named moments: the generation is void, the survivors go on, nothing is lost and nobody else restarts."""

import os
import signal
from collections import Counter
from collections.abc import Callable

import pytest
import torch
from tidepool import procfs

from tests.runtime.lab import Lab
from tests.runtime.test_live_resize import ARGUMENTS, EPOCHS, SAMPLES, reference
from tests.waiting import wait_until

__all__ = ["reference"]


def assert_nothing_lost(lab: Lab, reference: dict[str, torch.Tensor]) -> None:
    """Check as after planned resizes, but for the step in flight, whose samples the survivors read again."""
    steps = [record["step"] for record in lab.steps()]
    assert steps == list(range(1, EPOCHS * -(-SAMPLES // 64) + 1))
    read = Counter(line for path in lab.folder.glob("log/*/samples") for line in path.read_text().splitlines())
    assert set(read) == {f"{epoch} {index}" for epoch in range(EPOCHS) for index in range(SAMPLES)}
    final = torch.load(lab.folder / "model/train/model_epoch_final.pth", weights_only=True)
    for name, tensor in reference.items():
        assert torch.allclose(final[name], tensor, atol=1e-5), name


@pytest.mark.parametrize("victim", [0, pytest.param(1, marks=pytest.mark.long), 3])
def test_a_rank_dies_in_the_middle_of_training(
    make_lab: Callable[..., Lab], reference: dict[str, torch.Tensor], victim: int
) -> None:
    lab = make_lab("mlp.py", arguments=ARGUMENTS)
    lab.size(4)
    lab.wait_for_size(4)
    lab.wait_for_steps(3)
    before = lab.member_ids()
    lab.kill(before[victim])
    wait_until(lambda: before[victim] not in lab.member_ids(), lab.story)
    survivors = [member_id for member_id in before if member_id != before[victim]]
    assert lab.member_ids()[:3] == survivors
    lab.wait_for_size(4)
    lab.wait_for_the_end()

    assert lab.member_ids()[:3] == survivors, "those that lived trained on in the same processes"
    assert not lab.journal("lost")
    assert_nothing_lost(lab, reference)


def test_two_ranks_die_at_once(make_lab: Callable[..., Lab], reference: dict[str, torch.Tensor]) -> None:
    lab = make_lab("mlp.py", arguments=ARGUMENTS)
    lab.size(4)
    lab.wait_for_size(4)
    lab.wait_for_steps(2)  # from then on all four have the training's state
    before = lab.member_ids()
    for member_id in before[:2]:
        lab.kill(member_id)
    wait_until(lambda: not set(before[:2]) & set(lab.member_ids()), lab.story)
    lab.wait_for_the_end()

    assert_nothing_lost(lab, reference)


@pytest.mark.parametrize("point", ["switch", "optimizer", "reduce"])
def test_a_leaver_dies_before_it_has_left(
    make_lab: Callable[..., Lab], reference: dict[str, torch.Tensor], point: str
) -> None:
    passage = 1 if point == "switch" else 6
    lab = make_lab("mlp.py", arguments=ARGUMENTS, environment={"TIDEPOOL_FAULT": f"{point}@a.1.:{passage}:kill"})
    lab.size(2)
    lab.wait_for_size(2)
    lab.size(1)
    lab.wait_for_size(1)
    lab.wait_for_the_end()

    assert len(lab.member_ids()) == 1
    assert_nothing_lost(lab, reference)


def test_training_goes_on_without_its_coordinator_and_with_the_next_one(
    make_lab: Callable[..., Lab], reference: dict[str, torch.Tensor]
) -> None:
    lab = make_lab("mlp.py", arguments=ARGUMENTS)
    lab.size(2)
    lab.wait_for_size(2)
    before = lab.member_ids()
    os.kill(lab.coordinator["pid"], signal.SIGKILL)
    lab.wait_for_steps(5)
    lab.start_coordinator()
    lab.size(3)
    lab.wait_for_size(3)
    lab.wait_for_the_end()

    assert lab.member_ids()[:2] == before
    assert_nothing_lost(lab, reference)


def test_a_new_lead_hosts_coordinator_ends_the_one_that_still_runs(
    make_lab: Callable[..., Lab], reference: dict[str, torch.Tensor]
) -> None:
    lab = make_lab("mlp.py", arguments=ARGUMENTS)
    lab.size(2)
    lab.wait_for_size(2)
    before, first = lab.member_ids(), lab.coordinator
    lab.start_coordinator("elsewhere")
    wait_until(lambda: not procfs.alive(first["pid"], first["started_at"]), lab.story)
    lab.size(3)
    lab.wait_for_size(3)
    lab.wait_for_the_end()

    assert lab.member_ids()[:2] == before
    assert not lab.journal("lost")
    assert_nothing_lost(lab, reference)


def test_the_last_holder_dies_and_the_attempt_is_over(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab("mlp.py", arguments=ARGUMENTS)
    lab.size(1)
    lab.wait_for_steps(3)
    lab.kill(lab.member_ids()[0])
    wait_until(lambda: lab.journal("lost"), lab.story)

    assert not lab.journal("finished")


@pytest.mark.parametrize(
    ("point", "options"), [("step-result:17", ["--no-evaluation"]), ("sum-result:1", []), ("step-result:5", [])]
)
def test_one_survivor_has_the_result_and_another_has_not(
    make_lab: Callable[..., Lab], reference: dict[str, torch.Tensor], point: str, options: list[str]
) -> None:
    name, passage = point.split(":")
    deaths = f"{name}@a.0.1:{passage}:kill,{name}@a.1.2:{passage}:raise"
    lab = make_lab(
        "mlp.py", arguments=[*ARGUMENTS, *options], environment={"TIDEPOOL_FAULT": deaths}, min_slots=3, max_slots=3
    )
    lab.size(3)
    lab.wait_for_the_end()

    assert lab.exits()["a.0.1"]["signal"] == signal.SIGKILL
    assert [record["learning_rate"] for record in lab.steps()] == pytest.approx(
        [0.01 * 0.9 ** record["epoch"] for record in lab.steps()]
    ), "the scheduler was stepped once per epoch by everybody"
    assert_nothing_lost(lab, reference)


def test_ranks_that_their_script_ends_cost_the_others_nothing(
    make_lab: Callable[..., Lab], reference: dict[str, torch.Tensor]
) -> None:
    lab = make_lab(
        "mlp.py",
        arguments=ARGUMENTS,
        environment={"TIDEPOOL_FAULT": "reduce@a.1.2:5:raise,reduce@a.2.3:10:leave"},
        min_slots=3,
    )
    lab.size(3)
    wait_until(lambda: len(lab.started()) == 4, lab.story)
    lab.wait_for_the_end()

    assert lab.exits()["a.1.2"]["code"] == 1
    assert lab.exits()["a.1.2"]["error"]["message"] == "fault point reduce"
    assert lab.exits()["a.1.2"]["error"]["step"] == 4
    [failed] = lab.journal("rank_failed")
    assert (failed["member_id"], failed["step"]) == ("a.1.2", 4)
    assert {member_id.rsplit(".", 1)[0] for member_id in lab.started()} == {"a.0", "a.1", "a.2"}
    assert len(lab.started()) == 4, "the error was got past: the slot got another rank. Who leaves is not replaced"
    assert_nothing_lost(lab, reference)


def test_newcomers_that_end_in_the_same_way_are_not_tried_a_third_time(
    make_lab: Callable[..., Lab], reference: dict[str, torch.Tensor]
) -> None:
    lab = make_lab(
        "mlp.py",
        arguments=[*ARGUMENTS[:4], "--step-seconds", "0.4"],
        environment={"TIDEPOOL_FAULT": "reduce@a.1.2:3:raise,reduce@a.1.3:3:raise"},
    )
    lab.size(1)
    lab.wait_for_steps(2)
    lab.size(2)
    wait_until(lambda: lab.journal("growth_given_up"), lab.story)
    lab.wait_for_the_end()

    assert [failed["member_id"] for failed in lab.journal("rank_failed")] == ["a.1.2", "a.1.3"]
    [given_up] = lab.journal("growth_given_up")
    assert [member["member_id"] for member in given_up["members"]] == ["a.0.1"]
    assert given_up["error"]["message"] == "fault point reduce"
    assert len(lab.started()) == 3, "there was no third newcomer"
    assert_nothing_lost(lab, reference)


def test_the_same_error_twice_at_a_step_is_the_end(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab("mlp.py", arguments=[*ARGUMENTS, "--bad-sample", "700"], min_slots=4)
    lab.size(4)
    wait_until(lambda: lab.journal("lost"), lab.story)
    wait_until(lambda: len(lab.exits()) == 4, lab.story)

    first, second = lab.journal("rank_failed")
    [failed] = lab.journal("failed")
    assert failed["member_id"] == second["member_id"] != first["member_id"]
    assert failed["step"] == first["step"] == len(lab.steps()), lab.story()
    assert failed["error"]["message"] == "sample 700 is broken"
    assert "__getitem__" in failed["error"]["traceback"]
    assert len(lab.started()) == 4, "nobody was started again"
