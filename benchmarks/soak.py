"""Result of a training after many deaths of its ranks, compared with the same training undisturbed.

    python -m benchmarks.soak [--mode sum|bitwise] [--seed N] [--long] [--json FILE]

A job on three virtual GPUs loses a rank, whichever the die says, by `kill -9`: as soon as all three train and have made
a few steps, again and again. It is one job, so its state has been handed on from rank to rank as often as there were
deaths; none of the processes of the beginning sees the end. Then the same job trains on one rank to its end.

The final loss over all training data must be within 1 % in `sum` (a network without BatchNorm and dropout) and the
same bits in `bitwise` (a network with both), where each step's loss, all parameters, buffers and optimizer states are
compared to the bit too. Steps are lost or done twice if `metrics.jsonl` has a gap or a repetition.

A shim starts a rank that lives shortly only a few times; then the slot has to be given back and wanted again, as a
scheduler may do. The soak does so after every second death in a slot.
"""

import random
import sys
from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import torch
from torch.nn.functional import cross_entropy

from benchmarks.labs import laboratory, running
from benchmarks.networks import SOAKED, digits
from benchmarks.results import Result, arguments, result, show
from datasets.digits import write_digits
from tests.runtime.bits import different
from tests.runtime.lab import Lab
from tests.waiting import wait_until

SIZE = 3
#: Number of quick steps, counted from when all ranks train, before the last of which a rank is killed.
QUICK_STEPS = 10
#: Steps of the training for each death: the quick ones, and those until a replacement joins.
STEPS_PER_KILL = 30
STEPS_PER_EPOCH = 23
#: Number of deaths in a slot, after which it is given back.
DEATHS_PER_SLOT = 2
NO_LIMIT = 1_000_000_000
#: Training and options of the submission, by mode.
MODES: dict[str, tuple[str, dict[str, Any]]] = {
    "sum": ("plain", {"exactness": "sum"}),
    "bitwise": ("noisy", {"exactness": "bitwise", "virtual_ranks": 4}),
}


@dataclass
class Disturbed:
    killed: list[str] = field(default_factory=list)
    #: Kilobytes that the shim and the coordinator had after the tenth death, and at the end.
    memory: list[tuple[int, int]] = field(default_factory=list)


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--mode", choices=MODES, help="only this one")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    kills = 1200 if options.long else 20
    results: list[Result] = []
    with laboratory() as (forkserver, folder):
        write_digits(folder / "digits")
        for mode in [options.mode] if options.mode else MODES:
            print(f"{mode}: seed {options.seed}, {kills} kills", file=sys.stderr, flush=True)
            results += soak(forkserver, folder / mode, folder / "digits", mode, kills, random.Random(options.seed))
    show(results, options.json)


def soak(forkserver: Path, folder: Path, data: Path, mode: str, kills: int, dice: random.Random) -> list[Result]:
    network, launch = MODES[mode]
    epochs = max(1, kills * STEPS_PER_KILL // STEPS_PER_EPOCH)
    found = Disturbed()

    def job(name: str) -> AbstractContextManager[Lab]:
        script = ("soaked.py", epochs, network)
        return running(forkserver, folder / name, *script, slots=SIZE, data_dir=str(data), **launch)

    with job("disturbed") as lab, job("alone") as alone:
        kill_again_and_again(lab, kills, dice, found)
        set_pace(alone, NO_LIMIT)
        alone.size(1)
        wait_for_the_end(lab)
        wait_for_the_end(alone)
    return [*counts(lab, found, mode), *comparison(lab, alone, data, mode)]


def kill_again_and_again(lab: Lab, kills: int, dice: random.Random, found: Disturbed) -> None:
    deaths: Counter[int] = Counter()
    set_pace(lab, 0)
    lab.size(SIZE)
    for number in range(1, kills + 1):
        wait_until(lambda: lab.active()["world_size"] == SIZE, lab.story)
        made = len(lab.steps())
        set_pace(lab, made + QUICK_STEPS)
        wait_for_steps(lab, made + dice.randint(1, QUICK_STEPS))
        assert not lab.journal("finished"), f"the training was over after {number - 1} deaths: its pace is too quick"
        member_id = dice.choice(lab.member_ids())
        lab.kill(member_id)
        found.killed.append(member_id)
        wait_until(
            lambda member_id=member_id: member_id in lab.exits() and member_id not in lab.member_ids(), lab.story
        )
        assert not lab.journal("lost"), lab.story()
        give_back(lab, int(member_id.split(".")[1]), deaths)
        if number in (min(10, kills), kills):
            found.memory.append((kilobytes(lab.shims["a"]["pid"]), kilobytes(lab.coordinator["pid"])))
        if number % 50 == 0:
            print(f"{number} of {kills} kills, step {len(lab.steps())}", file=sys.stderr, flush=True)
    set_pace(lab, NO_LIMIT)


def give_back(lab: Lab, slot: int, deaths: Counter[int]) -> None:
    """The slot of a dead rank, once enough have died in it; and ask for it again."""
    deaths[slot] += 1
    if deaths[slot] == DEATHS_PER_SLOT:
        deaths[slot] = 0
        lab.target(*[("a", other) for other in range(SIZE) if other != slot])
        lab.target(*[("a", each) for each in range(SIZE)])


def set_pace(lab: Lab, step: int) -> None:
    unfinished = lab.folder / ".pace"
    unfinished.write_text(str(step))
    unfinished.rename(lab.folder / "pace")


def wait_for_steps(lab: Lab, number: int) -> None:
    wait_until(lambda: len(lab.steps()) >= number or lab.journal("finished"), lab.story)


def wait_for_the_end(lab: Lab) -> None:
    """Wait for the end, as long as it makes steps."""
    while not lab.journal("finished"):
        made = len(lab.steps())
        wait_until(lambda made=made: len(lab.steps()) > made or lab.journal("finished"), lab.story)
    lab.wait_for_the_end()


def kilobytes(pid: int) -> int:
    return int(psutil.Process(pid).memory_info().rss) // 1024


def counts(lab: Lab, found: Disturbed, mode: str) -> list[Result]:
    steps = Counter(record["step"] for record in lab.steps())
    others = [
        member_id
        for member_id, end in lab.exits().items()
        if (end["signal"] or end["code"]) and member_id not in found.killed
    ]
    (shim, coordinator), (shim_then, coordinator_then) = found.memory[0], found.memory[-1]
    figures = {
        "kills": len(found.killed),
        "steps": len(steps),
        "steps per kill": len(steps) / len(found.killed),
        "generations": lab.active()["generation"],
        "steps lost": max(steps) - len(steps),
        "steps done twice": steps.total() - len(steps),
        "other deaths": len(others),
        "shim's growth, kB": shim_then - shim,
        "coordinator's growth, kB": coordinator_then - coordinator,
    }
    return [result(f"{mode}: {name}", "", [value]) for name, value in figures.items()]


def comparison(lab: Lab, alone: Lab, data: Path, mode: str) -> list[Result]:
    losses = {record["step"]: record["loss"] for record in lab.steps()}
    differing = [record for record in alone.steps() if losses.get(record["step"]) != record["loss"]]
    ours, theirs = (loss(final(each)["model"], MODES[mode][0], data) for each in (lab, alone))
    largest = max(
        float((value.double() - final(alone)["model"][name].double()).abs().max())
        for name, value in final(lab)["model"].items()
    )
    return [
        result(f"{mode}: final loss", "", [ours], "undisturbed", [theirs]),
        result(f"{mode}: it differs by", "%", [100 * abs(ours - theirs) / theirs]),
        result(f"{mode}: steps whose loss differs", "", [len(differing)]),
        result(f"{mode}: tensors that differ", "", [len(different(final(lab), final(alone)))]),
        result(f"{mode}: largest difference", "1e-6", [1e6 * largest]),
    ]


def final(lab: Lab) -> dict[str, Any]:
    folder = lab.folder / "model" / "train"
    files = {"model": "model_epoch_final.pth", "optimizer": "model_epoch_final_optimizer_state.pth"}
    return {name: torch.load(folder / file, weights_only=True) for name, file in files.items()}


def loss(weights: dict[str, torch.Tensor], network: str, data: Path) -> float:
    """Loss over all training data."""
    model = SOAKED[network]()
    model.load_state_dict(weights)
    model.eval()
    images, labels = digits(data).tensors
    with torch.no_grad():
        return float(cross_entropy(model(images), labels))


if __name__ == "__main__":
    main()
