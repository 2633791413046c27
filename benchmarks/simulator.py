"""Results of policies on published traces, by the simulator (docs/architecture/simulator.md).

    python -m benchmarks.simulator [--json FILE] [--trace workload-6 ...] [--policy soon ...] [--delay 30/1] [--runs 5]
                                   [--declared none] [--load 2]

Anchors first: nothing is printed where one of them is off. The bars come last, as far as what they ask was played: with
`--delay 30/1`, over Pollux as published where they name no unit. `--processes 2` plays two traces at a time.
`--delay 30/1`: 30 s for a cold start and 1 s for a live resize; `30/30`: each change of a size costs 30 s, as
where trainings are stopped for it. `--noise SEED`: times of steps vary by 2x from minute to minute, and what trainings
measure is off by 20 %. `--runs 5`: each trace so many times, with steps that differ by 1e-7, which is enough for
another course of it: the bars hold for the medians then, and tell less of chance.

Each training declares its work truly, so policy `soon` knows its rest at any time; Pollux, as published, knows none.
`--declared 2`: each declares twice its work; `--declared none`: none does; `--declared 1 4`: every second one declares
four times its work. `--load 2`: twice the trainings in each hour.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import cache
from itertools import cycle
from math import inf, prod
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

from tidepool.goodput.model import Bounds

from benchmarks.anchors import BASELINES, PUBLISHED, check, played
from benchmarks.errors import Errors
from benchmarks.trace_files import GPUS_PER_HOST, HOSTS, ONE_GPU, Submission, applications, trace, traces
from core.process import fitting_alone
from scheduling.replay.measuring import Measured, bounds_of
from scheduling.replay.physics import Physics
from scheduling.replay.report import Figures, figures
from scheduling.replay.world import Costs, Replayed, World
from scheduling.snapshot import GroupView, JobView, SlotRef, SlotView

AIMS = ("soon", "used", "even")
POLICIES = ("rigid", "fifo", "fairshare", *BASELINES, *AIMS)
ALONE_HOSTS = 2
#: The trace that most bars are about, and the GPU-hours that Pollux took for it, as published.
ANCHOR, POLLUX_GPU_HOURS = "workload-6", 1008.0
#: With `--noise`: the slowest steps over the fastest, and how far measures are off.
SPREAD, ERROR = 2.0, 0.2
#: Relative difference of steps between one run and the next.
JITTER = 1e-7


def main() -> None:
    options = _arguments()
    with fitting_alone():
        _play(options)


def _play(options: argparse.Namespace) -> None:
    check()
    alone_seconds(_costs(options.delay, options.join))  # once for all processes
    wanted = [
        (options, name, policy, turn)
        for name in options.trace
        for policy in options.policy
        for turn in range(1 if policy in BASELINES else options.runs)
    ]
    rows = []
    with get_context("fork").Pool(options.processes) as pool:
        for row in pool.imap(_row, wanted):
            rows.append(row)
            _print(row)
    if (options.delay, options.noise, options.declared, options.load) == ("30/1", None, [1.0], 1.0):
        for bar in bars(rows):
            print(bar)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


def _row(wanted: tuple[argparse.Namespace, str, str, int]) -> dict[str, Any]:
    options, name, policy, turn = wanted
    began = process_time()
    found = run(policy, name, options, turn)
    named = ("delay", "noise", "declared", "load")
    setting = {"trace": name, "policy": policy, "run": turn} | {key: getattr(options, key) for key in named}
    ratio = _to_pollux(name, found) if options.load == 1.0 else None
    return {**setting, **asdict(found), "to_pollux": ratio, "cpu_seconds": process_time() - began}


def bars(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A line for each bar that these rows tell about: of several runs their median counts."""
    runs = defaultdict(list)
    for row in rows:
        runs[row["policy"], row["trace"]].append(row)
    counted = ("to_pollux", "gpu_hours", "rho_worst")
    by_run = {
        key: {name: median(row[name] for row in each) for name in counted if each[0][name] is not None}
        for key, each in runs.items()
    }
    ratios = {key: row["to_pollux"] for key, row in by_run.items() if "to_pollux" in row}
    for policy in AIMS:
        published = [ratio for (name, _), ratio in ratios.items() if name == policy]
        if len(published) > 1:
            mean = prod(published) ** (1 / len(published))
            yield _bar(f"{policy}, geometric mean of {len(published)} traces", mean, 0.83 if policy == "soon" else inf)
    for policy, most in (("soon", 0.82), ("used", 0.87), ("even", 0.90)):
        if row := by_run.get((policy, ANCHOR)):
            yield _bar(f"{policy}, {ANCHOR}", row["to_pollux"], most)
    for policy, times in (("soon", 1.08), ("even", 1.0)):
        if row := by_run.get((policy, ANCHOR)):
            yield _bar(f"{policy}, {ANCHOR}, GPU-hours", row["gpu_hours"], times * POLLUX_GPU_HOURS)
    if worst := [row["rho_worst"] for (policy, _), row in by_run.items() if policy == "soon"]:
        yield _bar(f"soon, worst finish-time ratio of {len(worst)} traces", max(worst), 2.0)


def _bar(name: str, found: float, most: float) -> str:
    verdict = "" if most == inf else f"  bar {most:8.2f}  {'met' if found <= most else 'NOT MET'}"
    return f"{name:48} {found:9.3f}{verdict}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--trace", nargs="+", choices=list(traces()), default=list(traces()))
    parser.add_argument("--policy", nargs="+", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--delay", choices=("30/1", "30/30"), default="30/1")
    parser.add_argument("--join", type=float, default=0.0, help="seconds that new ranks of a running training need")
    parser.add_argument("--noise", type=int, metavar="SEED", help="steps vary by 2x, and measures are off by 20 %%")
    parser.add_argument(
        "--declared", nargs="+", type=_declared, default=[1.0], help="declared work over the true one, or none, in turn"
    )
    parser.add_argument("--load", type=float, default=1.0, help="how many times the trainings of a trace are submitted")
    parser.add_argument("--runs", type=int, default=1, help="how many times each trace is played")
    parser.add_argument("--processes", type=int, default=1, help="how many traces are played at a time")
    return parser.parse_args()


def _declared(text: str) -> float | None:
    return None if text == "none" else float(text)


def _costs(delay: str, join: float) -> Costs:
    start, pause = (float(part) for part in delay.split("/"))
    return Costs(start, pause, join)


def run(policy: str, name: str, options: argparse.Namespace, turn: int) -> Figures:
    """Tiresias and Optimus have rounds of 60 s and 30 s for each change, as published, and know all exactly."""
    costs = _costs(options.delay, options.join)
    alone = alone_seconds(costs)
    if policy in BASELINES:
        return figures(played(policy, name, options.load), alone)
    submissions = trace(name, options.load)
    jobs = [job_of(number, submission, policy, options.noise) for number, submission in enumerate(submissions)]
    for job, declared in zip(jobs, cycle(options.declared), strict=False):
        job.physics.pace = 1.0 + JITTER * turn
        job.measured.declared = declared
    world = _world(policy, costs, HOSTS)
    world.play(jobs)
    return figures(jobs, alone, world.cycles)


@cache
def alone_seconds(costs: Costs) -> dict[str, float]:
    """Application -> seconds from submission to end on two hosts of its own."""
    found = {}
    for name, application in applications().items():
        job = job_of(0, Submission(name, 0.0, application, 1, application.largest_batch), "fairshare")
        _world("fairshare", costs, ALONE_HOSTS).play([job])
        found[name] = job.completion_seconds
    return found


def _world(policy: str, costs: Costs, hosts: int) -> World:
    refs = (SlotRef(f"h{host:02}", index) for host in range(hosts) for index in range(GPUS_PER_HOST))
    slots = tuple(SlotView(ref, ("all",), claimable=True) for ref in refs)
    return World((group_of(policy),), costs, slots, process_time)


def group_of(policy: str) -> GroupView:
    if policy in AIMS:
        return GroupView("all", "all", "goodput", preemption=True, aim=policy)  # type: ignore[arg-type]
    return GroupView("all", "all", "fairshare" if policy == "fairshare" else "fifo", preemption=True)


def job_of(number: int, submission: Submission, policy: str, noise: int | None = None) -> Replayed:
    """Under rigid and fifo with the batch and the most GPUs that its user asked for; else both are free."""
    application = submission.application
    bounds, most = bounds_of(application), HOSTS * GPUS_PER_HOST
    if policy in ("rigid", "fifo") or application.name == ONE_GPU:
        bounds = Bounds(submission.batch, None, *application.micro_bounds)
        most = submission.gpus
    else:
        most = min(most, application.largest_batch // application.micro_bounds[0])
    errors = None if noise is None else Errors(f"{noise}/{submission.name}", spread=SPREAD, error=ERROR)
    measured = Measured(bounds, errors)
    rigid = policy == "rigid"
    physics = Physics(application, measured.choose)
    least = most if rigid else 1
    view = JobView(number, submission.name, "all", "PENDING", 5000, submission.at, least, most, elastic=not rigid)
    view = replace(view, code=application.name)
    return Replayed(view, physics, measured)


def _to_pollux(name: str, found: Figures) -> float | None:
    published = PUBLISHED["pollux"].get(name)
    return found.average / published if published else None


def _print(row: dict[str, Any]) -> None:
    ratio = f"{row['to_pollux']:6.3f}" if row["to_pollux"] else " " * 6
    print(
        f"{row['trace']:16} {row['policy']:9} average {row['average']:7.1f} s {ratio}  median {row['median']:6.0f}  "
        f"99 % {row['p99']:6.0f}  makespan {row['makespan']:7.0f}  GPU-h {row['gpu_hours']:5.0f} "
        f"lost {row['lost_gpu_hours']:5.1f}  resizes {row['resizes']:5}  rho {row['rho_mean']:.2f} / "
        f"{row['rho_worst']:.2f} / {row['rho_above_one']:.0%}  cycles {row['cycles']:5} x {row['cycle_ms']:.2f} ms  "
        f"CPU {row['cpu_seconds']:.1f} s"
    )
    sys.stdout.flush()


if __name__ == "__main__":
    main()
