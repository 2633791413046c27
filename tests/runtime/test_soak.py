"""Resizes, deaths and stops by a seeded die, and what many resizes leave behind in a process that stays.

`benchmarks.soak` kills for longer, and compares with an undisturbed run in both exactnesses.

TIDEPOOL_SOAK_KILLS says how many (20; 200 or 1200 for a long run), TIDEPOOL_SOAK_SEED which.
"""

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from torch import nn

from benchmarks.soak import STEPS_PER_EPOCH, STEPS_PER_KILL, soak
from datasets.digits import write_digits
from tests.runtime.lab import OFF_CLUSTER, SCRIPTS, Lab
from tests.runtime.test_live_resize import SAMPLES
from tests.waiting import wait_until

KILLS = int(os.environ.get("TIDEPOOL_SOAK_KILLS", "20"))
SEED = int(os.environ.get("TIDEPOOL_SOAK_SEED", "1"))
#: One kill in so many is a SIGSTOP.
STOPS = 10
#: More than the kills take.
EPOCHS = 40 * KILLS // 20
PLACES = [(host, slot) for host in "ab" for slot in range(4)]


@pytest.mark.long
@pytest.mark.timeout(600 + 12 * KILLS)
def test_random_targets_deaths_and_stops(make_lab: Callable[..., Lab], tmp_path: Path) -> None:
    dice = random.Random(SEED)
    print(f"seed {SEED}, {KILLS} kills")
    arguments = ["--epochs", str(EPOCHS), "--samples", str(SAMPLES), "--no-evaluation"]
    drawn_out = [*arguments, "--step-seconds", "0.1"]
    lab = make_lab("mlp.py", arguments=drawn_out, sizes={"a": 4, "b": 4}, stuck_seconds=3.0)
    targets = [PLACES[: dice.randint(3, 6)]]
    lab.target(*targets[-1])
    killed: set[str] = set()
    while len(killed) < KILLS:
        lab.wait_for_steps(dice.randint(1, 4))
        assert not lab.journal("finished"), f"the training was over after {len(killed)} kills"
        spared = kill_some(lab, dice, killed, targets[-3:])
        wait_until(lambda: not killed & set(lab.member_ids()) or lab.journal("lost"), lab.story)
        assert not lab.journal("lost"), lab.story()
        if dice.random() < 0.5:
            wanted = {*spared, *dice.sample(PLACES, dice.randint(3, 8))}
            targets.append(sorted(wanted, key=lambda place: dice.random()))
            lab.target(*targets[-1])
    lab.hurry()
    wait_until(lambda: lab.journal("finished"), lab.story, 60 + EPOCHS)

    assert [record["step"] for record in lab.steps()] == list(range(1, EPOCHS * -(-SAMPLES // 64) + 1))
    read = Counter(line for path in lab.folder.glob("log/*/samples") for line in path.read_text().splitlines())
    assert set(read) == {f"{epoch} {index}" for epoch in range(EPOCHS) for index in range(SAMPLES)}
    final = torch.load(lab.folder / "model/train/model_epoch_final.pth", weights_only=True)
    undisturbed = train_undisturbed(arguments, tmp_path / "weights.pth")
    assert loss(final) == pytest.approx(loss(undisturbed), rel=0.01)


def kill_some(
    lab: Lab, dice: random.Random, killed: set[str], targets: list[list[tuple[str, int]]]
) -> list[tuple[str, int]]:
    """Some ranks die at once, but for one that stays whatever change is under way, for it has the training's state.

    `targets`: those that a plan under way may be made for. Returns the place of the one that is spared.
    """
    alive = [member_id for member_id in lab.member_ids() if member_id not in killed]
    staying = [member_id for member_id in alive if all(place_of(member_id) in target for target in targets)]
    if not staying:
        return []
    spared = dice.choice(staying)
    victims = [member_id for member_id in alive if member_id != spared]
    for member_id in dice.sample(victims, min(len(victims), dice.randint(1, 2))):
        with suppress(ProcessLookupError):  # the rank has left meanwhile
            lab.kill(member_id, signal.SIGSTOP if len(killed) % STOPS == STOPS - 1 else signal.SIGKILL)
            killed.add(member_id)
    return [place_of(spared)]


def place_of(member_id: str) -> tuple[str, int]:
    host, slot, _ = member_id.split(".")
    return host, int(slot)


def train_undisturbed(arguments: list[str], out: Path) -> dict[str, torch.Tensor]:
    command = [sys.executable, SCRIPTS / "mlp.py", *arguments, "--out", str(out)]
    subprocess.run(command, check=True, env=OFF_CLUSTER, timeout=100 + EPOCHS)
    return torch.load(out, weights_only=True)


def loss(weights: dict[str, torch.Tensor]) -> float:
    """Over all samples of the script, which it makes from the same numbers."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(SAMPLES, 20, generator=generator)
    labels = (inputs[:, :10].sum(1) > inputs[:, 10:].sum(1)).long()
    model = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 2))
    model.load_state_dict(weights)
    return float(nn.functional.cross_entropy(model(inputs), labels).detach())


@pytest.mark.long
def test_in_bitwise_a_training_with_many_deaths_is_the_undisturbed_one_to_the_bit(
    forkserver: Path, tmp_path: Path
) -> None:
    write_digits(tmp_path / "digits")

    found = soak(forkserver, tmp_path, tmp_path / "digits", "bitwise", 5, random.Random(SEED))

    figures = {figure.name.removeprefix("bitwise: "): figure.median for figure in found}
    assert figures["kills"] == 5
    assert figures["steps"] == 5 * STEPS_PER_KILL // STEPS_PER_EPOCH * STEPS_PER_EPOCH
    for name in ("steps lost", "steps done twice", "other deaths", "steps whose loss differs", "tensors that differ"):
        assert figures[name] == 0, name


def test_forty_resizes_leave_nothing_behind_in_a_rank_that_stays(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab("mlp.py", arguments=["--epochs", "1000", "--step-seconds", "0.002"], sizes={"a": 3})
    lab.size(1)
    lab.wait_for_size(1)
    [pid] = [entry["pid"] for entry in lab.started().values()]
    for number in range(40):
        lab.size(1 + (number + 1) % 2)
        lab.wait_for_size(1 + (number + 1) % 2)
        if number == 9:
            before = held(pid)
    after = wait_until(
        lambda: (now := held(pid))[0] <= before[0] and now[1] <= before[1] and now, lambda: str(held(pid))
    )

    assert after[2] < before[2] + 20_000, "kilobytes of memory"


def held(pid: int) -> tuple[int, int, int]:
    """Open descriptors, threads and kilobytes of memory of a process."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return len(os.listdir(f"/proc/{pid}/fd")), int(status["Threads"]), int(status["VmRSS"].split()[0])
