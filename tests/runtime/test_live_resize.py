"""Live resizes against an uninterrupted run: same steps, each sample once, same weights, same processes."""

import random
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.runtime.lab import SCRIPTS, Lab
from tests.runtime.off_cluster import run_off_cluster
from tests.waiting import wait_until

EPOCHS, SAMPLES = 4, 1030
#: Drawn out, so that resizes have all the time that they need, on a busy machine too.
ARGUMENTS = ["--epochs", str(EPOCHS), "--samples", str(SAMPLES), "--step-seconds", "0.1"]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """Weights of the same script run by plain python, off any cluster: one rank, never interrupted."""
    out = tmp_path_factory.mktemp("reference") / "weights.pth"
    run_off_cluster(SCRIPTS / "mlp.py", *ARGUMENTS[:4], "--out", out)
    return torch.load(out, weights_only=True)


def assert_nothing_lost(lab: Lab, reference: dict[str, torch.Tensor]) -> None:
    steps = lab.steps()
    per_epoch = -(-SAMPLES // 64)
    assert [record["step"] for record in steps] == list(range(1, EPOCHS * per_epoch + 1))
    assert [record["cursor"] for record in steps[:per_epoch]] == [*range(64, SAMPLES, 64), SAMPLES]
    read = Counter(line for path in lab.folder.glob("log/*/samples") for line in path.read_text().splitlines())
    assert read == Counter(f"{epoch} {index}" for epoch in range(EPOCHS) for index in range(SAMPLES))
    final = torch.load(lab.folder / "model/train/model_epoch_final.pth", weights_only=True)
    for name, tensor in reference.items():
        assert torch.allclose(final[name], tensor, atol=1e-5), name
    assert all(entry["code"] == 0 for entry in lab.exits().values()), lab.story()


def test_one_two_one(make_lab: Callable[..., Lab], reference: dict[str, torch.Tensor]) -> None:
    lab = make_lab("mlp.py", arguments=ARGUMENTS)
    lab.size(1)
    lab.wait_for_steps(10)
    [first] = lab.member_ids()
    lab.size(2)
    lab.wait_for_size(2)
    lab.wait_for_steps(10)
    lab.size(1)
    lab.wait_for_size(1)
    lab.wait_for_the_end()

    assert lab.member_ids() == [first]
    assert [record["world_size"] for record in lab.journal("generation_active")] == [1, 2, 1]
    assert len(lab.started()) == 2
    assert_nothing_lost(lab, reference)


@pytest.mark.parametrize(
    "sizes",
    # The last one is that of tests/journey/one_stack/test_nothing_lost.py, too.
    [[1, 4, 2, 3, 1], [2, 1, 4], pytest.param([1, 8, 4, 3, 8], marks=pytest.mark.long)],
    ids=lambda sizes: "-".join(map(str, sizes)),
)
def test_any_sizes(make_lab: Callable[..., Lab], reference: dict[str, torch.Tensor], sizes: list[int]) -> None:
    lab = make_lab("mlp.py", arguments=[*ARGUMENTS, "--rank-batch", "8"], sizes={"a": 4, "b": 4})
    for size in sizes:
        lab.size(size)
        lab.wait_for_size(size)
        lab.wait_for_steps(3)
    lab.wait_for_the_end()

    assert {record["world_size"] for record in lab.steps()} >= set(sizes)
    assert len(lab.journal("generation_abandoned")) == 0, lab.story()
    assert_nothing_lost(lab, reference)


def test_moves_to_other_slots_altogether(make_lab: Callable[..., Lab], reference: dict[str, torch.Tensor]) -> None:
    lab = make_lab("mlp.py", arguments=ARGUMENTS, sizes={"a": 2, "b": 2})
    lab.target(("a", 0), ("a", 1))
    lab.wait_for_size(2)
    lab.target(("b", 0), ("b", 1))
    wait_until(lambda: {member_id[0] for member_id in lab.member_ids()} == {"b"}, lab.story)
    lab.wait_for_the_end()

    assert {member_id[0] for member_id in lab.member_ids()} == {"b"}
    assert_nothing_lost(lab, reference)


def test_a_new_target_during_a_resize(make_lab: Callable[..., Lab], reference: dict[str, torch.Tensor]) -> None:
    lab = make_lab("mlp.py", arguments=ARGUMENTS)
    lab.size(1)
    lab.wait_for_steps(3)
    for size in (4, 2, 3):
        lab.size(size)
    lab.wait_for_size(3)
    lab.wait_for_the_end()

    assert_nothing_lost(lab, reference)


def test_random_targets_one_upon_another(make_lab: Callable[..., Lab], reference: dict[str, torch.Tensor]) -> None:
    """Several join and leave at once, and a new target comes before the last one is reached, or after it."""
    dice = random.Random(5)
    places = [(host, slot) for host in "ab" for slot in range(3)]
    lab = make_lab("mlp.py", arguments=ARGUMENTS, sizes={"a": 3, "b": 3})
    lab.target(*places[:2])
    for _ in range(12):
        lab.wait_for_steps(dice.randint(0, 4))
        lab.target(*dice.sample(places, dice.randint(1, 6)))
    lab.wait_for_the_end()

    assert not lab.journal("lost")
    assert not [record for record in lab.journal("generation_active") if record["cause"] == "failure"]
    assert_nothing_lost(lab, reference)


def test_one_that_is_still_preparing_at_the_end_goes_again(make_lab: Callable[..., Lab]) -> None:
    arguments = ["--epochs", "2", "--step-seconds", "0.02"]
    lab = make_lab("mlp.py", arguments=arguments, environment={"TIDEPOOL_FAULT": "prepare@a.1.2:1:stop"})
    lab.size(1)
    lab.wait_for_steps(1)
    lab.size(2)
    wait_until(lambda: lab.journal("finished"), lab.story)
    wait_until(lambda: "a.1.2" in lab.started(), lab.story)
    lab.kill("a.1.2", signal.SIGCONT)
    lab.wait_for_the_end()

    assert {record["world_size"] for record in lab.steps()} == {1}
    assert [entry["code"] for entry in lab.exits().values()] == [0, 0], lab.story()


def test_the_plan_file_says_who_trained_when(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab("mlp.py", arguments=ARGUMENTS)
    lab.size(2)
    lab.wait_for_size(2)
    lab.wait_for_the_end()

    for record in lab.steps():
        [plan] = [plan for plan in lab.journal("generation_active") if plan["generation"] == record["generation"]]
        assert plan["world_size"] == record["world_size"] == len(plan["members"])


def test_folder_has_the_final_weights_and_the_optimizer(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab("mlp.py", arguments=["--epochs", "1"])
    lab.size(1)
    lab.wait_for_the_end()

    names = sorted(path.name for path in (Path(lab.folder) / "model/train").iterdir())
    assert names == ["model_epoch_final.pth", "model_epoch_final_optimizer_state.pth"]
    assert lab.steps()[-1]["test_accuracy"] > 90


def test_rank_0_may_leave_and_every_step_is_written_down_once(
    make_lab: Callable[..., Lab], reference: dict[str, torch.Tensor]
) -> None:
    lab = make_lab("mlp.py", arguments=ARGUMENTS)
    lab.target(("a", 0))
    lab.wait_for_size(1)
    for slot in (1, 2, 3):
        lab.target(("a", slot - 1), ("a", slot))
        lab.wait_for_size(2)
        lab.target(("a", slot))
        lab.wait_for_size(1)
    lab.wait_for_the_end()

    assert {member_id.split(".")[1] for member_id in lab.member_ids()} == {"3"}
    assert_nothing_lost(lab, reference)


def test_a_rank_that_comes_after_the_end_goes_again(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab("mlp.py", arguments=["--epochs", "1"])
    lab.size(1)
    lab.wait_for_the_end()
    pid = lab.coordinator["pid"]
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), lambda: "the end of the coordinator")
    lab.send_to_shims([("a", 0), ("a", 1)])
    wait_until(lambda: "a.1.2" in lab.exits(), lab.story)

    assert lab.exits()["a.1.2"]["code"] == 0
