"""Sia's trainings on its 24 T4, 24 RTX 2080 Ti and 16 A100 GPUs, divided by policy goodput.

    python -m benchmarks.sia --artifact FOLDER [--trace workload-1 ...] [--every 60 10] [--policy soon] [--undeclared]
        [--costs live restart] [--turns 3] [--runs FILE]

FOLDER is `sia-simulator` of the artifact that belongs to the paper (SOSP'23, github.com/siasosp23/artifacts), unpacked.
Its cluster, its trace, the times of steps on each kind and the work of each training are read from there; its code is
not run. Steps take longer by the factors that it assumes for each application. Work ends with the last measured epoch.

`--every 60`: targets are kept for a minute while nobody comes or ends, and who comes is seen at the next full minute,
as in Sia's rounds; GPUs of a training that ends are free half a minute later, as they are in rounds on average. With
`--undeclared`, no training declares its work: Sia knows none. Under `live`, a start costs 30 s and a change 1 s; under
`restart`, each start and change takes as long as Sia's simulator lets a training of that application restart, and GPUs
are free at once. `--turns 3`: each trace so often, with steps that differ by 1e-7, which is enough for other decisions.
No training knows its speed on a kind before it has been there; its micro-batch is limited by what fits that kind. A
training on several kinds at once takes as long as on the slowest; if one kind has fewer hosts or GPUs per host than it
holds, the same number of that kind's GPUs (at most all) on its fewest hosts counts. rho: time from submission to end
over that alone on 8 T4.
"""

import argparse
import ast
import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import product
from math import ceil
from pathlib import Path
from time import process_time
from typing import Any
from unittest import mock

from benchmarks.recorded_runs import Runs
from benchmarks.simulator import AIMS, JITTER, group_of, job_of
from benchmarks.trace_files import Submission
from core.process import fitting_alone
from scheduling.policies import target_hold
from scheduling.replay import world
from scheduling.replay.profiles import Application, Placement, StepTime, application
from scheduling.replay.report import Figures, figures
from scheduling.replay.world import Costs, Replayed, World
from scheduling.snapshot import SlotRef, SlotView

COSTS = Costs(30.0, 1.0)
#: Application -> seconds that each start and each change of its trainings takes in Sia's simulator.
RESTART_SECONDS = {"cifar10": 50.0, "deepspeech2": 25.0, "bert": 120.0, "yolov3": 80.0, "imagenet": 250.0, "ncf": 15.0}
#: The kind that trainings are alone on for rho, and how many GPUs they have then.
ALONE_KIND, ALONE_GPUS = "aws", 8
#: Trace, costs -> Sia's average in hours with decisions each 60 s, played in its own simulator with these costs.
SIA_HOURS = {
    ("workload-1", "live"): 0.410,
    ("workload-2", "live"): 0.604,
    ("workload-3", "live"): 0.482,
    ("workload-1", "restart"): 0.542,
}


@dataclass(frozen=True, eq=False)
class OnKinds:
    """An application as it was measured on each kind."""

    by_kind: Mapping[str, Application]
    #: Kind -> smallest and largest micro-batch that was measured on any number of its GPUs.
    bounds: Mapping[str, tuple[int, int]]
    #: Kind -> its hosts, and GPUs on each.
    hosts: Mapping[str, tuple[int, int]]
    #: Factor of the times of steps.
    slowdown: float

    @cached_property
    def any(self) -> Application:
        """What does not depend on the kind is the same in each."""
        return next(iter(self.by_kind.values()))

    @property
    def name(self) -> str:
        return self.any.name

    @property
    def smallest_batch(self) -> int:
        return self.any.smallest_batch

    @property
    def largest_batch(self) -> int:
        return self.any.largest_batch

    @cached_property
    def micro_bounds(self) -> tuple[int, int]:
        least, most = zip(*self.bounds.values(), strict=True)
        return max(least), min(most)

    @property
    def epoch_ends(self) -> Sequence[float]:
        return self.any.epoch_ends

    def times_on(self, kind: str) -> Callable[[Placement, int], StepTime]:
        measured, (hosts, each) = self.by_kind[kind].step_times, self.hosts[kind]

        def times(placement: Placement, micro: int) -> StepTime:
            if len(placement) > hosts or max(placement) > each:  # a training on several kinds
                full, rest = divmod(min(sum(placement), hosts * each), each)
                placement = (each,) * full + ((rest,) if rest else ())
            found = measured(placement, micro)
            return StepTime(found.step * self.slowdown, found.sync * self.slowdown)

        return times

    def noise(self, batch: float, epoch: int) -> tuple[float, float]:
        return self.any.noise(batch, epoch)

    def gain(self, batch: float, epoch: int) -> float:
        return self.any.gain(batch, epoch)


class Artifact:
    """Files of an unpacked artifact."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._settings = _constants(folder / "simulator_config.py")
        each = self._settings["cluster_ngpus_per_node"]
        self._hosts = {kind: (count, each[kind]) for kind, count in self._settings["cluster_nnodes"].items()}
        self._applications: dict[str, OnKinds] = {}

    def slots(self, kind: str | None = None) -> Iterator[SlotView]:
        """Yield the GPUs of its cluster, or of one kind."""
        hosts = [(one, each) for one, (count, each) in self._hosts.items() for _ in range(count)]
        for number, (one, each) in enumerate(hosts):
            if kind in (None, one):
                for index in range(each):
                    yield SlotView(SlotRef(f"h{number:02}", index), ("all",), claimable=True, device=one)

    def trace(self, name: str) -> list[Submission]:
        with (self._folder / "workloads" / "philly" / f"{name}.csv").open() as file:
            rows = sorted(csv.DictReader(file), key=lambda row: float(row["time"]))
        return [self._submission(row) for row in rows]

    def _submission(self, row: Mapping[str, str]) -> Submission:
        found: Any = self._application(row["application"])
        return Submission(row["name"], float(row["time"]), found, int(row["num_replicas"]), int(row["batch_size"]))

    def _application(self, name: str) -> OnKinds:
        if name not in self._applications:
            folder, by_kind, bounds = self._folder / "traces" / name, {}, {}
            for kind in self._hosts:
                files = {file.name: file.read_text() for file in folder.glob("validation-*.csv")}
                for table in ("placements", "scalability"):
                    files[f"{table}.csv"] = (folder / f"{table}-{kind}.csv").read_text()
                by_kind[kind] = application(name, files)
                bounds[kind] = micro_bounds(files, by_kind[kind].largest_batch)
            self._applications[name] = OnKinds(by_kind, bounds, self._hosts, self._settings["SLOWDOWNS"][name])
        return self._applications[name]


def micro_bounds(files: Mapping[str, str], largest_batch: int) -> tuple[int, int]:
    """Return the smallest and largest micro-batch that were measured at each shape, or would exceed the largest batch
    there."""
    sizes: dict[tuple[int, int], set[int]] = {}
    for row in csv.DictReader(files["placements.csv"].splitlines()):
        digits = [int(digit) for digit in row["placement"]]
        sizes.setdefault((len(digits), sum(digits)), set()).add(int(row["local_bsz"]))
    for row in csv.DictReader(files["scalability.csv"].splitlines()):
        sizes.setdefault((int(row["num_nodes"]), int(row["num_replicas"])), set()).add(int(row["local_bsz"]))
    usual = [
        size
        for size in set().union(*sizes.values())
        if all(size in measured or size * ranks > largest_batch for (_, ranks), measured in sizes.items())
    ]
    return min(usual), max(usual)


def _constants(path: Path) -> dict[str, Any]:
    """Return the literals that a Python file assigns to names, without running it."""
    found = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = ast.literal_eval(node.value)
    return found


@dataclass(frozen=True)
class Run:
    trace: str
    policy: str
    #: Seconds between decisions.
    every: float
    #: "live" or "restart".
    costs: str
    declared: bool
    turn: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--artifact", type=Path, required=True, help="folder sia-simulator of the artifact")
    parser.add_argument("--trace", nargs="+", default=["workload-1"], help="of its folder workloads/philly")
    parser.add_argument("--every", nargs="+", type=float, default=[60.0, 10.0], help="seconds between decisions")
    parser.add_argument("--policy", nargs="+", choices=AIMS, default=["soon"])
    parser.add_argument("--undeclared", action="store_true", help="no training declares its work")
    parser.add_argument("--costs", nargs="+", choices=("live", "restart"), default=["live"])
    parser.add_argument("--turns", type=int, default=1, help="how many times each trace is played")
    parser.add_argument("--runs", type=Path, help="a file of lines of JSON, one for each run")
    options = parser.parse_args()
    artifact, recorded = Artifact(options.artifact), Runs(options.runs)
    with fitting_alone():
        for name, policy, costs, every in product(options.trace, options.policy, options.costs, options.every):
            for turn in range(options.turns):
                run = Run(name, policy, every, costs, not options.undeclared, turn)
                _print(run, recorded.figures({"sia": asdict(run)}, partial(played, artifact, run)))


def played(artifact: Artifact, run: Run) -> Figures:
    submissions = artifact.trace(run.trace)
    with ExitStack() as stack:
        for module in (target_hold, world):
            stack.enter_context(mock.patch.object(module, "TARGET_HOLD_SECONDS", run.every))
        jobs = [_job(number, submission, run) for number, submission in enumerate(submissions)]
        cluster = World((group_of(run.policy),), COSTS, tuple(artifact.slots()), process_time)
        cluster.play(jobs)
    return figures(jobs, _alone_seconds(artifact, submissions), cluster.cycles)


def _job(number: int, submission: Submission, run: Run) -> Replayed:
    job = job_of(number, submission, run.policy)
    job.costs = _costs(submission.application.name, run)
    job.comes_at = ceil(job.submitted_at / run.every) * run.every
    job.physics.pace = 1.0 + JITTER * run.turn
    job.measured.declared = 1.0 if run.declared else None
    job.measured.micro_batches = _largest_micro_batches(submission)
    return job


def _costs(application: str, run: Run) -> Costs:
    if run.costs == "live":
        return replace(COSTS, free=run.every / 2)
    seconds = RESTART_SECONDS[application]
    return Costs(seconds, seconds, release=0.0, free=run.every / 2)


def _largest_micro_batches(submission: Submission) -> dict[str, int]:
    found: Any = submission.application
    return {kind: most for kind, (_, most) in found.bounds.items()}


def _alone_seconds(artifact: Artifact, submissions: Sequence[Submission]) -> dict[str, float]:
    slots = tuple(artifact.slots(ALONE_KIND))[:ALONE_GPUS]
    found = {}
    for one in {submission.application for submission in submissions}:
        job: Replayed = job_of(0, Submission("", 0.0, one, 1, one.largest_batch), "fairshare")
        World((group_of("fairshare"),), COSTS, slots, process_time).play([job])
        found[one.name] = job.completion_seconds
    return found


def _print(run: Run, found: Figures) -> None:
    hours = found.average / 3600
    sia = SIA_HOURS.get((run.trace, run.costs))
    ratio = f"  {hours / sia:.3f} of Sia each 60 s" if sia else ""
    print(
        f"{run.trace:12} {run.policy:6} {run.costs:7} every {run.every:3.0f} s  average {hours:.3f} h{ratio}  "
        f"median {found.median / 3600:.3f} h  99 % {found.p99 / 3600:.2f} h  GPU-h {found.gpu_hours:5.0f}  "
        f"resizes {found.resizes:5}  rho {found.rho_mean:.2f} / {found.rho_worst:.2f}  "
        f"cycles {found.cycles:5} x {found.cycle_ms:.2f} ms",
        flush=True,
    )


if __name__ == "__main__":
    main()
