"""What each level of isolation costs: a training's first rank and further ones, its first step, resizes and steps.

    python -m benchmarks.walls [--long] [--only starts|trainings] [--json FILE]

One forkserver forks the jobs of all levels in turns, so that each round is a pair. Starts are from the request to the
first line of a script without a session: to the first rank, which waits for the shim and its wall, and from the wish
for a second rank to its line, with the wall there already. The first step is from the request for a shim to the record
of the first step of an elastic training with one rank; it is then resized 1 -> 2 -> 1 several times. The pause of a
resize is the gap between the steps around it, less a median step at the new size.

Levels that need more rights than this process has are left out and named. `sealed` has control groups with limits and a
filter of devices besides.
"""

import itertools
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tidepool.confine.devices import give, shared
from tidepool.confine.probe import Apart, probe
from tidepool.confine.wall import Wall

from benchmarks.labs import laboratory, median_step, running
from benchmarks.results import Result, arguments, result, show
from tests.isolation import wall_around
from tests.runtime.lab import SCRIPTS
from tests.runtime.process_tree import JobReconciler, running_forkserver
from tests.waiting import wait_until
from workers.executor.forkserver import Forkserver
from workers.executor.limits import Amounts, ControlGroups, control_groups

SCRIPT = """
import os, pathlib, time
pathlib.Path(os.environ["RESULT_DIR"], os.environ["TIDEPOOL_SLOT"]).write_text(repr(time.time()))
while True:
    time.sleep(1)
"""
PORT = "walled, with a closed port"
LEVELS = ("none", "walled", PORT, "separate", "sealed")
LIMITS = Amounts(8 * 1024**3, 4096)
RESIZES, SETTLE_STEPS = 4, 40

Figures = dict[str, dict[str, list[float]]]


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--only", choices=["starts", "trainings"], help="one half")
    options = parser.parse_args()
    levels, groups = _levels()
    figures: Figures = defaultdict(lambda: defaultdict(list))
    if options.only != "trainings":
        _start(figures, levels, groups, 60 if options.long else 20)
    if options.only != "starts":
        _train(figures, [level for level in levels if level != PORT], groups, 12 if options.long else 4)
    show([*_results(figures)], options.json)


def _levels() -> tuple[list[str], ControlGroups]:
    """Return the levels that this process can give, and the control groups of sealed trainings."""
    with tempfile.TemporaryDirectory() as folder:
        found = probe(Apart(70001, (folder,), has_own_devices=True))
    missing = {"separate": found.why_no_users, "sealed": found.why_no_devices}
    for level, why in missing.items():
        if why:
            sys.stderr.write(f"{level} is left out: {why}\n")
    groups = control_groups(LIMITS, "benchmark", filters_devices=not found.why_no_devices)
    return [level for level in LEVELS if not missing.get(level)], groups


def _results(figures: Figures) -> Iterator[Result]:
    for name, by_level in figures.items():
        for level, values in by_level.items():
            compared = () if level == "none" else by_level["none"]
            yield result(f"{name}, {level}", "ms", values, "none", compared)
            if level != "none":
                differences = [ours - theirs for ours, theirs in zip(values, by_level["none"], strict=True)]
                yield result(f"{name}, {level}, later than none, pairs", "ms", differences)


# --- starts ---


def _start(figures: Figures, levels: list[str], groups: ControlGroups, rounds: int) -> None:
    with running_forkserver(levels[-1]) as (forkserver, _), tempfile.TemporaryDirectory() as top:
        for number, level in itertools.product(range(rounds + 1), levels):
            first, second = _timed(forkserver, Path(top, f"{number}.{LEVELS.index(level)}"), level, groups)
            if number:  # the first of each warms caches up
                figures["first rank"][level].append(1000 * first)
                figures["further rank"][level].append(1000 * second)


def _timed(forkserver: Forkserver, folder: Path, level: str, groups: ControlGroups) -> tuple[float, float]:
    """Return the seconds to the first line of a job's first rank and of its second one."""
    folder.mkdir()
    wall = _wall(folder, level)
    begun = time.time()
    job = JobReconciler(forkserver, folder, SCRIPT, wall=wall, engine="elastic", launch_seconds=600.0)
    try:
        if level == "sealed":
            _seal(groups, job.pid, job.status.pid)
        job.desired([0])
        first = job.written("0") - begun
        begun = time.time()
        job.desired([0, 1], 2)
        second = job.written("1") - begun
        job.stop(0.0)
        wait_until(lambda: not job.processes())
    finally:
        job.close()
    groups.forget("7.1")
    return first, second


def _wall(folder: Path, level: str) -> Wall | None:
    if level == PORT:
        made = wall_around(folder, (), "walled")
        assert made is not None
        return Wall(made.hidden, made.readable, made.writable, made.temporary, (5432,))
    return wall_around(folder, (), "" if level == "none" else level)


def _seal(groups: ControlGroups, pid: int, guardian: int) -> None:
    """Do what an executor does with the guardian of a sealed job."""
    groups.hold("7.1", pid, 2, devices=shared())
    give(guardian, {}, partial(groups.holds, "7.1"))


# --- trainings ---


def _train(figures: Figures, levels: list[str], groups: ControlGroups, rounds: int) -> None:
    with laboratory(levels[-1]) as (forkserver, folder):
        for number in range(rounds + 1):
            for level in levels:
                found = _trained(forkserver, folder / f"{number}.{level}", level, groups)
                if number:
                    for name, value in found.items():
                        figures[name][level].append(value)
            sys.stderr.write(f"trainings: round {number} of {rounds}\n")


def _trained(forkserver: Path, folder: Path, level: str, groups: ControlGroups) -> dict[str, float]:
    """Return the milliseconds of a training: to its first step, of a resize, and of a step at either size."""
    options = ["--epochs", 1_000_000, "--no-evaluation"]
    begun = time.time()
    isolation = "" if level == "none" else level
    with running(forkserver, folder, "mlp.py", *options, slots=2, code_folder=str(SCRIPTS), level=isolation) as lab:
        if level == "sealed":
            lab.wait_for_shim("a")
            _seal(groups, lab.shims["a"]["pid"], lab.shims["a"]["pid"])
        for size in [1, *[2, 1] * RESIZES]:
            lab.size(size)
            lab.wait_for_size(size)
            lab.wait_for_steps(SETTLE_STEPS)
        steps = [(record["at"], record["world_size"]) for record in lab.steps()]
    groups.forget("7.1")
    blocks = [[at for at, _ in block] for _, block in itertools.groupby(steps, key=lambda step: step[1])]
    medians = {size: statistics.median(median_step(block) for block in blocks[size - 1 :: 2]) for size in (1, 2)}
    pauses = [
        after[0] - before[-1] - medians[2 if place % 2 == 0 else 1]
        for place, (before, after) in enumerate(itertools.pairwise(blocks))
    ]
    seconds = {"first step": steps[0][0] - begun, "resize": statistics.median(pauses)}
    return {
        name: 1000 * value for name, value in (seconds | {f"step at {size}": medians[size] for size in medians}).items()
    }


if __name__ == "__main__":
    main()
