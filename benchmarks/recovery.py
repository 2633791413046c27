"""Pause of a training after one of its ranks is killed, against `torchrun`.

    python -m benchmarks.recovery [--long] [--json FILE]

A job of the demo's network trains on three virtual GPUs of this machine. One of its ranks, each in turn, gets
`kill -9`; the figure is the time until the step that was in flight is complete on the survivors, made again from the
same samples. `allowance` is that time over what it may be: three normal steps of the survivors and 150 ms. Steps are
lost if `metrics.jsonl` has a gap or a repetition. The slot's next rank joins before the next kill.

The competitor, `plain_ddp.py`, trains the same network and data with DistributedDataParallel under `torchrun`, with
a checkpoint after every tenth step, which costs it little. Its figure is the time until it has made one step more than
before the kill. Both are measured in each round.
"""

import itertools
import os
import signal
import sys
import time
from collections import defaultdict
from pathlib import Path

from benchmarks.labs import laboratory, median_step, plain_ddp, running, steps_of, torchrun, until
from benchmarks.networks import EXAMPLE
from benchmarks.results import Result, arguments, result, show
from datasets.digits import write_digits

SIZE = 3
SETTLE_STEPS = 15
#: A shim starts a rank that is killed soon a few times only: each job is asked to bear so many deaths.
KILLS_PER_JOB = 9
ALLOWED_STEPS, ALLOWED_MS = 3, 150

#: Name of a figure -> its values; times in milliseconds.
Found = defaultdict[str, list[float]]


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    kills = 200 if options.long else 20
    live, restarted = Found(list), Found(list)
    with laboratory() as (forkserver, folder):
        write_digits(folder / "digits")
        for number in itertools.count():
            left = kills - len(live["recoveries"])
            if left <= 0:
                break
            kill_live(forkserver, folder / f"live-{number}", folder / "digits", min(left, KILLS_PER_JOB), live)
            kill_restarted(folder / f"restarted-{number}", folder / "digits", restarted)
            print(f"{len(live['recoveries'])} of {kills} kills", file=sys.stderr)
    show(figures(live, restarted), options.json)


def figures(live: Found, restarted: Found) -> list[Result]:
    pairs = zip(live["recoveries"], live["steps"], strict=True)
    return [
        result("kill -9 to the redone step", "ms", live["recoveries"], "torchrun", restarted["recoveries"]),
        result("allowance used", "x", [took / (ALLOWED_STEPS * step + ALLOWED_MS) for took, step in pairs]),
        result("normal step of the survivors", "ms", live["steps"]),
        result("steps lost", "", live["lost"]),
        result("torchrun, kill -9 to a new step", "ms", restarted["recoveries"]),
        result("torchrun, steps redone", "", restarted["redone"]),
    ]


def kill_live(forkserver: Path, folder: Path, data: Path, kills: int, found: Found) -> None:
    script = {"code_folder": str(EXAMPLE), "compat": ["wmla"], "data_dir": str(data)}
    with running(forkserver, folder, "elastic-main.py", "--epochs", 5000, slots=SIZE, **script) as lab:
        lab.size(SIZE)
        for number in range(kills):
            lab.wait_for_size(SIZE)
            lab.wait_for_steps(SETTLE_STEPS)
            before = len(lab.steps())
            killed_at = time.time()
            lab.kill(lab.member_ids()[number % SIZE])
            after = until(lambda at=killed_at: [one for one in lab.steps() if one["at"] > at], SETTLE_STEPS, lab.story)
            survived = [one for one in after if one["world_size"] < SIZE] or after
            found["recoveries"].append(1000 * (survived[0]["at"] - killed_at))
            found["steps"].append(1000 * median_step([one["at"] for one in survived]))
            numbers = [one["step"] for one in lab.steps()[before - 1 :]]
            found["lost"].append(sum(late - early != 1 for early, late in itertools.pairwise(numbers)))


def kill_restarted(folder: Path, data: Path, found: Found) -> None:
    """One death: its restart takes as long as dozens of the others'."""
    folder.mkdir()
    log = folder / "log"
    options = ["--standalone", f"--nproc-per-node={SIZE}", "--max-restarts=3"]
    agent = torchrun(log, options, plain_ddp(folder, "digits", data, 10))
    try:
        until(lambda: steps_of(folder), 2 * SETTLE_STEPS, log.read_text)
        killed_at = time.time()
        os.kill(int((folder / f"pid-{len(found['recoveries']) % SIZE}").read_text()), signal.SIGKILL)
        done = max(step for _, step, _ in steps_of(folder))
        new = until(
            lambda: [at for at, step, _ in steps_of(folder) if at > killed_at and step > done], 1, log.read_text
        )
        found["recoveries"].append(1000 * (new[0] - killed_at))
        found["redone"].append(sum(at > killed_at and step <= done for at, step, _ in steps_of(folder)))
    finally:
        agent.terminate()
        agent.wait(timeout=60)


if __name__ == "__main__":
    main()
