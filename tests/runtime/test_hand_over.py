"""The state travels while the holders compute the next step: what they may do meanwhile, and who may die."""

import runpy
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tidepool.torch.data import epoch_order

from tests.runtime.lab import SCRIPTS, Lab
from tests.runtime.test_failures import assert_nothing_lost as assert_nothing_lost_by_deaths
from tests.runtime.test_live_resize import ARGUMENTS, SAMPLES, assert_nothing_lost, reference
from tests.waiting import wait_until

__all__ = ["reference"]

BATCH = 64


def read_by(lab: Lab, member_id: str) -> list[str]:
    """Samples that a rank has read for training, as `epoch index`."""
    [path] = lab.folder.glob(f"log/{member_id}.*/samples")
    return path.read_text().split("\n")[:-1]


def is_stopped(lab: Lab, member_id: str) -> bool:
    started = lab.started().get(member_id)
    return started is not None and Path(f"/proc/{started['pid']}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_holders_compute_the_next_step_while_the_state_is_on_its_way(
    make_lab: Callable[..., Lab], reference: dict[str, torch.Tensor]
) -> None:
    lab = make_lab("mlp.py", arguments=ARGUMENTS, environment={"TIDEPOOL_FAULT": "transfer@a.1.2:1:stop"})
    lab.size(1)
    lab.wait_for_steps(3)
    [holder] = lab.member_ids()
    lab.size(2)
    wait_until(lambda: is_stopped(lab, "a.1.2"), lab.story)
    done = wait_until(lambda: lab.active()["world_size"] == 2 and lab.active()["step"], lab.story)
    wait_until(lambda: len(read_by(lab, holder)) == BATCH * (done + 1), lab.story)
    assert len(lab.steps()) <= done, "the step needs the joiner's zeros"
    lab.kill("a.1.2", signal.SIGCONT)
    lab.wait_for_the_end()

    epoch, index = map(int, read_by(lab, "a.1.2")[0].split())
    place = epoch * SAMPLES + epoch_order(7, epoch, SAMPLES).index(index)
    assert place >= BATCH * (done + 1), "its first samples are of the step after that"
    assert_nothing_lost(lab, reference)


@pytest.mark.parametrize(
    "options",
    [["--decay"], ["--average"], ["--average", "--samples", "64", "--epochs", "40"]],
    ids=["decay-in-the-body", "average", "epochs-of-one-step"],
)
def test_whatever_scripts_do_to_parameters_joiners_get_those_of_the_boundary(
    make_lab: Callable[..., Lab], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    lab = make_lab("liberties.py", arguments=options)
    for size in (1, 3, 1, 2, 4):
        lab.size(size)
        lab.wait_for_size(size)
        lab.wait_for_steps(2)
    lab.wait_for_the_end()

    assert all(entry["code"] == 0 for entry in lab.exits().values()), lab.story()
    assert_equals_plain_python(lab, monkeypatch, tmp_path, options, 1e-5)


def test_the_body_of_a_step_that_is_made_again_leaves_no_trace(
    make_lab: Callable[..., Lab], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaths = "transfer@a.1.2:1:kill,receive@a.1.3:1:kill"
    lab = make_lab("liberties.py", arguments=["--batch-norm"], environment={"TIDEPOOL_FAULT": deaths})
    lab.size(1)
    lab.wait_for_steps(2)
    lab.size(2)
    wait_until(lambda: "a.1.3" in lab.exits(), lab.story)
    lab.size(1)
    lab.wait_for_the_end()

    assert {record["world_size"] for record in lab.steps()} == {1}, "no step was complete with a joiner"
    assert_equals_plain_python(lab, monkeypatch, tmp_path, ["--batch-norm"], 0.0)


def assert_equals_plain_python(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, folder: Path, options: list[str], tolerance: float
) -> None:
    """The same script off the cluster: one rank, never interrupted."""

    out = folder / "weights.pth"
    monkeypatch.setattr(sys, "argv", ["liberties.py", *options, "--out", str(out)])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    runpy.run_path(str(SCRIPTS / "liberties.py"))
    torch.set_num_threads(threads)
    expected = torch.load(out, weights_only=True)
    final = torch.load(lab.folder / "model/train/model_epoch_final.pth", weights_only=True)
    for name, tensor in expected.items():
        assert torch.allclose(final[name], tensor, atol=tolerance, rtol=0.0), name


def test_a_sender_meets_an_error_of_its_own(make_lab: Callable[..., Lab], reference: dict[str, torch.Tensor]) -> None:
    lab = make_lab("mlp.py", arguments=ARGUMENTS, environment={"TIDEPOOL_FAULT": "send@a.0.1:2:raise"}, min_slots=2)
    lab.size(2)
    lab.wait_for_size(2)
    before = lab.member_ids()
    lab.size(4)
    lab.wait_for_size(4)
    lab.wait_for_the_end()

    assert not [member_id for member_id, entry in lab.exits().items() if entry["signal"]]
    assert set(before) <= set(lab.member_ids())
    assert not lab.journal("lost")
    assert_nothing_lost_by_deaths(lab, reference)


def test_ranks_of_a_former_release_give_and_get_the_state_too(
    make_lab: Callable[..., Lab], reference: dict[str, torch.Tensor]
) -> None:
    """The rank in slot 1 is among the joiners, then a holder; without it, the others use routes again."""
    lab = make_lab("mlp.py", arguments=[*ARGUMENTS, "--former", "a.1."])
    lab.size(1)
    lab.wait_for_steps(2)
    for places in ([0, 1, 2], [0, 1, 2, 3], [0, 2], [0, 2, 3]):
        lab.target(*[("a", slot) for slot in places])
        lab.wait_for_size(len(places))
        lab.wait_for_steps(2)
    lab.wait_for_the_end()
    assert_nothing_lost(lab, reference)


def test_a_third_rank_dies_while_the_state_is_on_its_way(
    make_lab: Callable[..., Lab], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = make_lab("liberties.py", environment={"TIDEPOOL_FAULT": "transfer@a.2.3:1:stop"})
    lab.size(2)
    lab.wait_for_size(2)
    lab.wait_for_steps(2)
    sender, third = lab.member_ids()
    lab.size(3)
    wait_until(lambda: is_stopped(lab, "a.2.3"), lab.story)
    lab.kill(third)
    wait_until(lambda: third not in lab.member_ids(), lab.story)
    lab.wait_for_steps(2)
    lab.kill("a.2.3", signal.SIGCONT)
    lab.wait_for_size(3)
    lab.wait_for_the_end()

    assert lab.member_ids()[0] == sender
    assert "a.2.3" in lab.member_ids(), "the joiner took another turn in its process"
    assert [record["step"] for record in lab.steps()] == list(range(1, 31))
    assert_equals_plain_python(lab, monkeypatch, tmp_path, [], 1e-5)


def test_state_that_cannot_travel_ends_the_job_before_it_trains(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab("liberties.py", arguments=["--untravelling"])
    lab.size(1)
    wait_until(lambda: lab.exits(), lab.story)

    [end] = lab.exits().values()
    assert "['average']['seen'] is a set, which cannot be carried to another process" in end["error"]["message"]
    assert lab.steps() == []
