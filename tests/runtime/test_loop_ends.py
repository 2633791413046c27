"""A training ends after all of its epochs, whatever its script passes to the loop and does after it."""

import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.runtime.lab import Lab
from tests.runtime.test_halt import halted, newest
from tests.waiting import wait_until

Make = Callable[..., Lab]
EPOCHS, STEPS = 6, 4
SLOW = ["--step-seconds", "0.3"]
SNAPSHOT = "snapshot.pt"


def epochs_of(lab: Lab) -> dict[str, list[str]]:
    """Epochs that each rank's loop has had, by member_id, in their order."""
    found: dict[str, list[str]] = {}
    path = lab.folder / "epochs"
    for line in path.read_text().splitlines() if path.exists() else []:
        member_id, _, what = line.partition(" ")
        found.setdefault(member_id, []).append(what)
    return found


def weights(lab: Lab) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = torch.load(lab.folder / "model/train/model_epoch_final.pth", weights_only=True)
    return state


def assert_whole(*labs: Lab, epochs: int = EPOCHS) -> None:
    """Each step was made, and made once, by the attempts together."""
    steps = [record["step"] for lab in labs for record in lab.steps()]
    assert list(dict.fromkeys(steps)) == list(range(1, epochs * STEPS + 1)), labs[-1].story()
    reported_later = [record["step"] for lab in labs for record in lab.steps() if "after" in record]
    assert len(steps) - len(set(steps)) <= len(reported_later) <= 1
    assert labs[-1].journal("finished")[-1]["epoch"] == epochs


def make_snapshots(make_lab: Make, *arguments: str, after: Lab | None = None, **launch: Any) -> Lab:
    """Make a training that keeps a snapshot of its own. after: the one whose snapshot it continues from."""
    lab = make_lab("loop_ends.py", arguments=["--snapshot", SNAPSHOT, *arguments], **launch)
    if after is not None:
        shutil.copyfile(after.folder / SNAPSHOT, lab.folder / SNAPSHOT)
    return lab


# --- snapshots of a script's own ---


def test_a_joiner_that_passes_only_the_last_epochs_works_in_that_of_the_others(make_lab: Make) -> None:
    lab = make_snapshots(make_lab, *SLOW)
    lab.size(1)
    lab.wait_for_steps(2 * STEPS + 1)
    lab.size(2)
    lab.wait_for_size(2)
    lab.wait_for_the_end()

    assert_whole(lab)
    alone = make_lab("loop_ends.py")
    alone.size(1)
    alone.wait_for_the_end()
    for name, value in weights(alone).items():
        assert torch.allclose(weights(lab)[name], value, atol=1e-5), name


def test_a_training_that_resumes_does_all_of_its_epochs(make_lab: Make) -> None:
    first = make_snapshots(make_lab, *SLOW)
    first.size(1)
    first.wait_for_steps(3 * STEPS + 1)
    halted(first)
    second = make_snapshots(make_lab, after=first, checkpoints=newest(first))
    second.size(1)
    second.wait_for_the_end()

    assert_whole(first, second)


def test_a_plain_range_that_is_shorter_on_resume_is_refused(make_lab: Make) -> None:
    first = make_snapshots(make_lab, "--by-range", *SLOW)
    first.size(1)
    first.wait_for_steps(4 * STEPS + 1)
    halted(first)
    second = make_snapshots(make_lab, "--by-range", after=first, checkpoints=newest(first))
    second.size(1)
    wait_until(second.exits, second.story)

    [end] = second.exits().values()
    assert end["error"]["message"].startswith("the script has ended after 2 passes over the data, and the training is")
    assert "tidepool.torch.epochs(range(start, epochs))" in end["error"]["message"]
    assert not second.journal("finished")


def test_a_joiner_of_a_plain_range_that_leaves_its_loop_early_stops_the_training(make_lab: Make) -> None:
    lab = make_snapshots(make_lab, "--by-range", "--epochs", "12", *SLOW)
    lab.size(1)
    lab.wait_for_steps(4 * STEPS + 1)
    lab.size(2)
    wait_until(lambda: len(lab.exits()) == len(lab.started()) or lab.journal("lost"), lab.story)
    wait_until(lambda: len(lab.exits()) == len(lab.started()), lab.story)

    assert not lab.journal("finished")
    errors = {end["error"]["kind"] for end in lab.exits().values() if end["error"]}
    assert errors <= {"LoopsDiffer", "RuntimeError"}, lab.story()
    assert errors, lab.story()


# --- ranks that part ways ---


def test_a_rank_that_leaves_its_loop_before_the_others_stops_the_training_with_stacks(make_lab: Make) -> None:
    lab = make_lab("loop_ends.py", arguments=["--leave", "2@a.1."], min_slots=2)
    lab.size(2)
    wait_until(lambda: lab.journal("lost") and len(lab.exits()) == 2, lab.story)

    for end in lab.exits().values():
        assert (end["error"]["kind"], end["by_script"]) == ("LoopsDiffer", True)
        assert "the training loop has ended in a.1." in end["error"]["message"]
        assert "most recent call first" in end["error"]["traceback"]
    assert any("loop_ends.py" in end["error"]["traceback"] for end in lab.exits().values()), "where one waits"
    assert not lab.journal("finished")


def test_a_first_rank_that_leaves_its_loop_early_does_not_end_the_training_as_done(make_lab: Make) -> None:
    lab = make_lab("loop_ends.py", arguments=["--leave", "2@a.0."], min_slots=2)
    lab.size(2)
    wait_until(lambda: lab.journal("lost") and len(lab.exits()) == 2, lab.story)
    assert not lab.journal("finished")


def test_all_ranks_may_stop_early_together(make_lab: Make) -> None:
    lab = make_lab("loop_ends.py", arguments=["--leave", "2@a."], min_slots=2)
    lab.size(2)
    lab.wait_for_the_end()

    assert len(lab.steps()) == 3 * STEPS
    assert {end["code"] for end in lab.exits().values()} == {0}


# --- the script after its loop ---


@pytest.mark.parametrize(("end", "code"), [("", 0), ("exit_0", 0), ("os_exit", 0), ("error", 1)])
@pytest.mark.parametrize("size", [1, 2])
def test_what_is_trained_is_kept(make_lab: Make, end: str, code: int, size: int) -> None:
    lab = make_lab("loop_ends.py", arguments=["--end", end], min_slots=size)
    lab.size(size)
    lab.wait_for_the_end()

    assert_whole(lab)
    assert {end["code"] for end in lab.exits().values()} == {code}
    assert weights(lab)
    assert not lab.journal("lost")
    assert lab.steps()[-1]["after"] == 1.0, "a metric that the script reports after its loop"


def test_a_second_loop_goes_on_where_the_first_one_ended(make_lab: Make) -> None:
    lab = make_lab("loop_ends.py", arguments=["--second-loop", "3", *SLOW])
    lab.size(1)
    lab.wait_for_steps(7 * STEPS + 1)
    lab.size(2)
    lab.wait_for_size(2)
    lab.wait_for_the_end()

    assert_whole(lab, epochs=EPOCHS + 3)
    first, joiner = epochs_of(lab).values()
    assert first == [*map(str, range(9)), "end"]
    assert set(joiner) <= {"6", "7", "8", "end"}, joiner


# --- the first process ---


def test_the_first_process_is_known_before_the_loop(make_lab: Make) -> None:
    lab = make_lab("loop_ends.py", arguments=["--writer", *SLOW], min_slots=2)
    lab.size(2)
    lab.wait_for_steps(STEPS)
    lab.size(3)
    lab.wait_for_size(3)
    lab.wait_for_the_end()

    assert_whole(lab)
    assert (lab.folder / "written").read_text().split() == [str(epoch) for epoch in range(EPOCHS)]
    assert {end["code"] for end in lab.exits().values()} == {0}, lab.story()


# --- the deadline ---


def test_a_training_that_makes_no_step_is_stopped_with_its_stacks(make_lab: Make) -> None:
    lab = make_lab("mlp.py", environment={"TIDEPOOL_FAULT": "reduce:9:hang"}, stuck_seconds=2.0, stall_seconds=3.0)
    lab.size(1)
    wait_until(lambda: lab.exits(), lab.story)

    [end] = lab.exits().values()
    assert (end["error"]["kind"], end["by_script"]) == ("Stalled", True)
    assert "the script is busy in a.0.1" in end["error"]["message"]
    assert "mlp.py" in end["error"]["traceback"], "where it hangs"
    assert lab.journal("lost")
