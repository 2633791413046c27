"""Pause of a training after one of its ranks is killed, against `torchrun`.

    python -m benchmarks.recovery [--long] [--json FILE]

A job of the demo's network trains on three virtual GPUs of this machine. One of its ranks, each in turn, gets
`kill -9`; the figure is the time until the step that was in flight is complete on the survivors, made again from the
same samples. `allowance` is that time over what it may be: three normal steps of the survivors and 150 ms. Steps are
lost if `metrics.jsonl` has a gap or a repetition. The slot's next rank joins before the next kill.

The competitor, `torchrun_ddp.py`, trains the same network and data with DistributedDataParallel under `torchrun`, with
a checkpoint after every tenth step, which costs it little. Its figure is the time until it has made one step more than
before the kill. Both are measured in each round.
"""

from __future__ import annotations

import itertools
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.results import Result, arguments, result, show
from datasets.digits import write_digits
from tests.runtime.lab import Lab, running_forkserver
from tests.waiting import wait_until

SIZE = 3
SETTLE_STEPS = 15
#: A shim starts a rank that is killed soon a few times only: each job is asked to bear so many deaths.
KILLS_PER_JOB = 9
ALLOWED_STEPS, ALLOWED_SECONDS = 3, 0.150
HERE = Path(__file__).parent
EXAMPLE = HERE.parent / "examples" / "digits-cnn"


@dataclass
class Live:
    #: Seconds from the kill to the end of the redone step, and a normal step of the survivors.
    recoveries: list[float] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)
    lost: list[float] = field(default_factory=list)


@dataclass
class Restarted:
    recoveries: list[float] = field(default_factory=list)
    redone: list[float] = field(default_factory=list)


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    kills = 200 if options.long else 20
    live, restarted = Live(), Restarted()
    with tempfile.TemporaryDirectory(prefix="tide") as folder, running_forkserver(Path(folder)) as forkserver:
        data = Path(folder) / "digits"
        write_digits(data)
        for number in itertools.count():
            left = kills - len(live.recoveries)
            if left <= 0:
                break
            kill_live(forkserver, Path(folder) / f"live-{number}", data, min(left, KILLS_PER_JOB), live)
            kill_restarted(Path(folder) / f"restarted-{number}", data, restarted)
            print(f"{len(live.recoveries)} of {kills} kills", file=sys.stderr)
    show(figures(live, restarted), options.json)


def figures(live: Live, restarted: Restarted) -> list[Result]:
    allowed = [ALLOWED_STEPS * step + ALLOWED_SECONDS for step in live.steps]
    stopped = [1000 * seconds for seconds in restarted.recoveries]
    return [
        result("kill -9 to the redone step", "ms", [1000 * one for one in live.recoveries], "torchrun", stopped),
        result("allowance used", "x", [took / may for took, may in zip(live.recoveries, allowed, strict=True)]),
        result("normal step of the survivors", "ms", [1000 * step for step in live.steps]),
        result("steps lost", "", live.lost),
        result("torchrun, kill -9 to a new step", "ms", stopped),
        result("torchrun, steps redone", "", restarted.redone),
    ]


def kill_live(forkserver: Path, folder: Path, data: Path, kills: int, found: Live) -> None:
    script = {"code_folder": str(EXAMPLE), "compat": ["wmla"], "data_dir": str(data)}
    lab = Lab(forkserver, folder, "elastic-main.py", arguments=["--epochs", "5000"], sizes={"a": SIZE}, **script)
    try:
        lab.size(SIZE)
        for number in range(kills):
            lab.wait_for_size(SIZE)
            lab.wait_for_steps(SETTLE_STEPS)
            before = len(lab.steps())
            killed_at = time.time()
            lab.kill(lab.member_ids()[number % SIZE])
            after = _until(lambda at=killed_at: [one for one in lab.steps() if one["at"] > at], SETTLE_STEPS, lab.story)
            survived = [one for one in after if one["world_size"] < SIZE] or after
            found.recoveries.append(survived[0]["at"] - killed_at)
            found.steps.append(_median_step([one["at"] for one in survived]))
            numbers = [one["step"] for one in lab.steps()[before - 1 :]]
            found.lost.append(float(sum(late - early != 1 for early, late in itertools.pairwise(numbers))))
    finally:
        lab.stop()


def kill_restarted(folder: Path, data: Path, found: Restarted) -> None:
    """One death: its restart takes as long as dozens of the others'."""
    folder.mkdir()
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={SIZE}"),
        *("--max-restarts=3", str(HERE / "torchrun_ddp.py"), str(folder), str(data), str(EXAMPLE)),
    ]
    # Without it torchrun of 2.13 may wait for ever for the store of the round before.
    environment = os.environ | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1"}
    with (folder / "log").open("w") as log:
        torchrun = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        _until(lambda: _read(folder), 2 * SETTLE_STEPS, (folder / "log").read_text)
        killed_at = time.time()
        os.kill(int((folder / f"pid-{len(found.recoveries) % SIZE}").read_text()), signal.SIGKILL)
        done = max(step for at, step in _read(folder))
        new = _until(
            lambda: [one for one in _read(folder) if one[0] > killed_at and one[1] > done],
            1,
            (folder / "log").read_text,
        )
        again = [step for at, step in _read(folder) if at > killed_at and step <= done]
        found.recoveries.append(new[0][0] - killed_at)
        found.redone.append(float(len(again)))
    finally:
        torchrun.terminate()
        torchrun.wait(timeout=60)


def _until(steps: Callable[[], list[Any]], count: int, what: Callable[[], str]) -> list[Any]:
    return list(wait_until(lambda: len(found := steps()) >= count and found, what))


def _median_step(moments: list[float]) -> float:
    return statistics.median(late - early for early, late in itertools.pairwise(moments))


def _read(folder: Path) -> list[tuple[float, int]]:
    file = folder / "steps.txt"
    if not file.exists():
        return []
    lines = [line.split() for line in file.read_text().split("\n")[:-1]]
    return [(float(at), int(step)) for at, step in lines]


if __name__ == "__main__":
    main()
