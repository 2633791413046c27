"""How long training stands still when it is resized, against stopping it and starting it again from a checkpoint.

    python -m benchmarks.resize [--long] [--json FILE]

A job of the demo's network is resized live on this machine's virtual GPUs, round after round. The pause of a change is
the gap between the last step at the old size and the first at the new one, less a median step at the new size: what
the training lost, wherever it was lost. It is shown in milliseconds and as a multiple of that step.

The competitor, `restarted_ddp.py`, trains the same network and data with DistributedDataParallel and changes its size
as clusters without live resizes do: SIGTERM, checkpoint, exit, new processes, load. Both are measured in each round.
"""

from __future__ import annotations

import itertools
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.results import Result, arguments, result, show
from datasets.digits import write_digits
from tests.runtime.lab import Lab, running_nursery, wait_for

CHANGES = [(1, 2), (2, 4), (4, 2), (8, 4)]
SIZES = [1, 2, 4, 2, 8, 4]
SETTLE_STEPS = 30
HERE = Path(__file__).parent
EXAMPLE = HERE.parent / "examples" / "digits-cnn"

#: (unix seconds, world size) of each step.
Steps = list[tuple[float, int]]
#: (pause, median step at the new size), seconds.
Pause = tuple[float, float]


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    rounds = 12 if options.long else 4
    live: dict[tuple[int, int], list[Pause]] = {change: [] for change in CHANGES}
    restarted: dict[tuple[int, int], list[Pause]] = {change: [] for change in CHANGES}
    with tempfile.TemporaryDirectory(prefix="tide") as folder, running_nursery(Path(folder)) as nursery:
        data = Path(folder) / "digits"
        write_digits(data)
        for number in range(rounds):
            _add(live, live_steps(nursery, Path(folder) / f"live-{number}", data))
            for change in CHANGES:
                steps = restarted_steps(Path(folder) / f"restarted-{number}-{change[0]}-{change[1]}", data, *change)
                _add(restarted, steps)
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
    show(figures(live, restarted), options.json)


def figures(live: dict[tuple[int, int], list[Pause]], restarted: dict[tuple[int, int], list[Pause]]) -> list[Result]:
    found = []
    for old, new in CHANGES:
        name = f"{old} -> {new}"
        stopped = [1000 * pause for pause, _ in restarted[old, new]]
        pauses = [1000 * pause for pause, _ in live[old, new]]
        found.append(result(f"live {name}", "ms", pauses, "stop and start", stopped))
        found.append(result(f"live {name}, in steps", "x", [pause / step for pause, step in live[old, new]]))
        found.append(result(f"stop and start {name}", "ms", stopped))
    return found


def live_steps(nursery: Path, folder: Path, data: Path) -> Steps:
    script = {"code_folder": str(EXAMPLE), "compat": ["wmla"], "data_dir": str(data)}
    lab = Lab(nursery, folder, "elastic-main.py", arguments=["--epochs", "5000"], sizes={"a": 4, "b": 4}, **script)
    try:
        for size in SIZES:
            lab.size(size)
            lab.wait_for_size(size)
            lab.wait_for_steps(SETTLE_STEPS)
        return [(record["at"], record["world_size"]) for record in lab.steps()]
    finally:
        lab.stop()


def restarted_steps(folder: Path, data: Path, old: int, new: int) -> Steps:
    folder.mkdir()
    for size in (old, new):
        ranks = _start_ranks(folder, data, size)
        wait_for(lambda size=size: _count(folder, size) >= SETTLE_STEPS, lambda: "steps of the competitor", 120)
        for rank in ranks:
            rank.send_signal(signal.SIGTERM)
        for rank in ranks:
            rank.wait(timeout=60)
    return _read(folder)


def _start_ranks(folder: Path, data: Path, size: int) -> list[subprocess.Popen[bytes]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    place = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, str(HERE / "restarted_ddp.py"), str(folder), str(data), str(EXAMPLE)]
    return [subprocess.Popen(command, env=os.environ | place | {"RANK": str(rank)}) for rank in range(size)]


def _count(folder: Path, size: int) -> int:
    return sum(1 for _, found in _read(folder) if found == size)


def _read(folder: Path) -> Steps:
    file = folder / "steps.txt"
    if not file.exists():
        return []
    lines = [line.split() for line in file.read_text().split("\n")[:-1]]
    return [(float(at), int(size)) for at, _, size in lines]


def _add(pauses: dict[tuple[int, int], list[Pause]], steps: Steps) -> None:
    blocks = [list(block) for _, block in itertools.groupby(steps, key=lambda step: step[1])]
    for before, after in itertools.pairwise(blocks):
        change = (before[-1][1], after[-1][1])
        if change in pauses:
            step = statistics.median(late - early for (early, _), (late, _) in itertools.pairwise(after))
            pauses[change].append((after[0][0] - before[-1][0] - step, step))


if __name__ == "__main__":
    main()
