"""Benefit and cost of exactness `bitwise` against `sum`.

    python -m benchmarks.exactness [--long] [--json FILE]

Cost: the step time of both exactnesses, alternated block by block in the same processes, on 1, 2 and 4 ranks (gloo,
one thread each) with 4 virtual ranks and 64 samples per step. The figure of a block is its shortest step, since other
work on the machine only ever adds.

Difference: a small training with BatchNorm and dropout, and one without, are resized 1 -> 2 -> 4 -> 3 -> 2 -> 4 -> 1
in real processes; the figure is the largest difference of any parameter or buffer from an uninterrupted run of one.
"""

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch.distributed import TCPStore

from benchmarks.exactness_rank import MODELS, VIRTUAL_RANKS
from benchmarks.labs import HERE, laboratory, running
from benchmarks.results import Result, arguments, result, show
from tests.runtime.lab import RUNTIME, SCRIPTS

RANKS = (1, 2, 4)
CHANGES = (1, 2, 4, 3, 2, 4, 1)
#: Trainings that are resized, by name: arguments of the tests' script.
TRAININGS = {"plain MLP": ["--epochs", "20", "--plain"], "BatchNorm, dropout": ["--epochs", "20"]}


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    blocks, rounds = (40, 5) if options.long else (12, 1)
    found = [figure for name in MODELS for size in RANKS for figure in cost(name, size, blocks)]
    with laboratory() as (forkserver, folder):
        for name in TRAININGS:
            found += differences(forkserver, folder, name, rounds)
    show(found, options.json)


def cost(name: str, size: int, blocks: int) -> list[Result]:
    store = TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=30), wait_for_workers=False)
    command = [sys.executable, "-m", "benchmarks.exactness_rank", name]
    places = [[str(rank), str(size), str(store.port), str(blocks + 1)] for rank in range(size)]
    environment = os.environ | {"PYTHONPATH": str(RUNTIME)}
    ranks = [
        subprocess.Popen([*command, *place], cwd=HERE.parent, env=environment, stdout=subprocess.PIPE, text=True)
        for place in places
    ]
    texts = [rank.communicate(timeout=600)[0] for rank in ranks]
    assert not any(rank.returncode for rank in ranks), "a rank failed"
    taken: dict[str, list[float]] = {"sum": [], "bitwise": []}
    for line in texts[0].splitlines():
        exactness, milliseconds = json.loads(line)
        taken[exactness].append(milliseconds)
    where = f"{name}, {size} rank{'s' if size > 1 else ''}"
    return [
        result(f"step in sum, {where}", "ms", taken["sum"]),
        result(f"step in bitwise, {where}", "ms", taken["bitwise"], "sum", taken["sum"]),
    ]


def differences(forkserver: Path, folder: Path, name: str, rounds: int) -> list[Result]:
    found: dict[str, list[float]] = {"sum": [], "bitwise": []}
    for number in range(rounds):
        for exactness, largest in found.items():
            virtual = VIRTUAL_RANKS if exactness == "bitwise" else None
            place = folder / f"{name[:5]}-{exactness}-{number}"
            largest.append(difference(forkserver, place, TRAININGS[name], virtual))
    return [result(f"difference in {exactness}, {name}", "1e-6", largest) for exactness, largest in found.items()]


def difference(forkserver: Path, folder: Path, given: list[str], virtual_ranks: int | None) -> float:
    """The largest one of any parameter or buffer, in millionths."""
    launch: dict[str, Any] = {"exactness": "bitwise", "virtual_ranks": virtual_ranks} if virtual_ranks else {}
    script = (*given, "--slow-until", "over")
    with running(forkserver, folder, "cnn.py", *script, slots=4, code_folder=str(SCRIPTS), **launch) as lab:
        for size in CHANGES:
            lab.size(size)
            lab.wait_for_size(size)
            lab.wait_for_steps(2)
        (lab.folder / "over").touch()
        lab.wait_for_the_end()
    out = folder / "alone.pth"
    alone = [*given, *(["--virtual-ranks", str(virtual_ranks)] if virtual_ranks else []), "--out", str(out)]
    environment = os.environ | {"PYTHONPATH": str(RUNTIME)}
    subprocess.run([sys.executable, str(SCRIPTS / "cnn.py"), *alone], check=True, env=environment, timeout=300)
    elastic = torch.load(lab.folder / "model/train/model_epoch_final.pth", weights_only=True)
    single = torch.load(out, weights_only=True)
    single = single.get("model", single)
    return max(1e6 * float((elastic[name].double() - value.double()).abs().max()) for name, value in single.items())


if __name__ == "__main__":
    main()
