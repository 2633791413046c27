"""The published trainings on 16 hosts with three kinds of GPU: by prices, against a partition for each.

    python -m benchmarks.mixed [--trace workload-6 ...] [--seed 1 2 3 4 5] [--pause 90] [--without speeds ...]
        [--runs FILE]

`--without` switches off one part of the policy each, `everything` all of them together. `--runs` appends each run to a
file, and plays none that the file has already: a long comparison may be stopped at any time.

`apart` is policy goodput, too, but each kind is a resource group of its own, and trainings are dealt to them in
proportion to what they compute, as where users choose a partition. `fairshare` shares all GPUs, whatever their kind.
Times of steps were measured on one kind alone. Here a fast kind computes so many times as fast, another factor for each
application, and its sums take as long; the factors are assumed, between hardly and fully what the fast GPU has more.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, product
from math import inf, prod
from pathlib import Path
from random import Random
from time import process_time
from typing import Any
from unittest import mock

from benchmarks.recorded_runs import Runs
from benchmarks.simulator import AIMS, group_of, job_of
from benchmarks.trace_files import GPUS_PER_HOST, Submission, applications, trace, traces
from core.process import fitting_alone
from scheduling import schedule
from scheduling.placement import joining
from scheduling.policies import goodput_bids, goodput_shares, gpu_kinds, target_hold
from scheduling.replay import world
from scheduling.replay.profiles import Application, Placement, StepTime
from scheduling.replay.report import Figures, figures
from scheduling.replay.world import Costs, World
from scheduling.snapshot import SlotRef, SlotView

#: Part of the policy -> what is put in its place.
PARTS: Mapping[str, tuple[tuple[Any, str, object], ...]] = {
    "speeds": ((world, "medians", lambda measured, codes: ()),),
    "weights": (
        (goodput_bids, "_POWER_OF_KINDS", goodput_bids._POWER),
        (goodput_bids, "_URGENCY_POWER_OF_KINDS", goodput_bids._URGENCY_POWER),
    ),
    "left": ((goodput_shares, "seconds_left", lambda *_: 300.0),),
    "record": ((goodput_shares, "lasts_for", lambda left, *_: left), (joining, "lasts_for", lambda left, *_: left)),
    "bonus": ((goodput_bids, "BONUS_OF_KINDS", 0.0975),),
    "fairness": ((goodput_shares, "BEHIND", inf),),
    "exchanges": ((gpu_kinds, "_TRIED_EACH", 1),),
    "place": ((schedule, "joining_of", lambda *_: None),),
    "often": ((target_hold, "TARGET_HOLD_SECONDS", 60.0), (world, "TARGET_HOLD_SECONDS", 60.0)),
}
#: All parts together but `often`: the policy before any of them, which decided each ten seconds, too.
EVERYTHING = "everything"
COSTS = Costs(30.0, 1.0)
POLICIES = ("apart", "fifo", "fairshare", *AIMS)

#: Kind -> hosts, and how much faster it computes at most.
KINDS = {"slow": (8, 1.0), "medium": (4, 2.0), "fast": (4, 4.0)}
#: Share of a GPU's speed that an application uses: the rest of its time goes to data, or to many small kernels.
_USED = {"bert": 1.0, "cifar10": 0.5, "deepspeech2": 0.7, "imagenet": 0.9, "ncf": 0.1, "yolov3": 0.8}
#: The least share that is drawn with a seed.
_LEAST_USED = 0.2


@dataclass(frozen=True, eq=False)
class OnKinds:
    """An application whose steps take other times on other kinds."""

    measured: Application
    #: Kind -> share of its speed that the application uses.
    used: Mapping[str, float]

    @property
    def name(self) -> str:
        return self.measured.name

    @property
    def smallest_batch(self) -> int:
        return self.measured.smallest_batch

    @property
    def largest_batch(self) -> int:
        return self.measured.largest_batch

    @property
    def micro_bounds(self) -> tuple[int, int]:
        return self.measured.micro_bounds

    @property
    def epoch_ends(self) -> Sequence[float]:
        return self.measured.epoch_ends

    def times_on(self, kind: str) -> Callable[[Placement, int], StepTime]:
        faster = KINDS[kind][1] if kind else 1.0
        used = self.used[kind] if kind else 0.0

        def times(placement: Placement, micro: int) -> StepTime:
            found = self.measured.step_times(placement, micro)
            compute = (found.step - found.sync) * (1.0 - used + used / faster)
            return StepTime(compute + found.sync, found.sync)

        return times

    def noise(self, batch: float, epoch: int) -> tuple[float, float]:
        return self.measured.noise(batch, epoch)

    def gain(self, batch: float, epoch: int) -> float:
        return self.measured.gain(batch, epoch)


@dataclass(frozen=True)
class Scene:
    """A trace, and the shares of the kinds' speeds that its applications use."""

    name: str
    trace: str
    used: Mapping[str, Mapping[str, float]]

    def on_kinds(self, application: Application) -> OnKinds:
        return OnKinds(application, self.used[application.name])


def assumed(name: str) -> Scene:
    return Scene(name, name, {application: dict.fromkeys(KINDS, used) for application, used in _USED.items()})


def drawn(seed: int) -> Scene:
    dice, names = Random(seed), list(traces())
    used = {application: {kind: dice.uniform(_LEAST_USED, 1.0) for kind in KINDS} for application in sorted(_USED)}
    name = names[(seed - 1) % len(names)]
    return Scene(f"{name} seed {seed}", name, used)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", nargs="+", choices=list(traces()), default=list(traces()))
    parser.add_argument("--seed", nargs="+", type=int, help="instead of --trace")
    parser.add_argument("--policy", nargs="+", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--without", nargs="+", choices=[*PARTS, EVERYTHING], default=[])
    parser.add_argument("--runs", type=Path, help="a file of lines of JSON, one for each run")
    parser.add_argument("--pause", type=float, default=COSTS.pause, help="seconds that a change of size costs")
    options = parser.parse_args()
    scenes = [drawn(seed) for seed in options.seed] if options.seed else [assumed(name) for name in options.trace]
    costs = replace(COSTS, pause=options.pause)
    runs = [*((policy, "") for policy in options.policy), *product(set(AIMS) & set(options.policy), options.without)]
    ratios: dict[tuple[str, str], list[float]] = {run: [] for run in runs}
    recorded = Runs(options.runs)
    with fitting_alone():
        for scene in scenes:

            def run(policy: str, without: str, scene: Scene = scene) -> Figures:
                key = {"scene": scene.name, "policy": policy, "without": without, "pause": costs.pause}
                return recorded.figures(key, lambda: _without(without, policy, scene, costs))

            apart = run("apart", "")
            for policy, without in runs:
                found = run(policy, without)
                ratios[policy, without].append(found.average / apart.average)
                _print(scene.name, _name(policy, without), found, ratios[policy, without][-1])
    for names, each in ratios.items():
        print(f"{_name(*names):24} geometric mean of {len(each)} traces: {prod(each) ** (1 / len(each)):.3f}")


def _name(policy: str, without: str) -> str:
    return f"{policy} without {without}" if without else policy


def _without(part: str, policy: str, scene: Scene, costs: Costs) -> Figures:
    with ExitStack() as stack:
        every = [changed for name, changed in PARTS.items() if name != "often"]
        parts = every if part == EVERYTHING else [PARTS[part]] if part else []
        for module, name, value in chain.from_iterable(parts):
            stack.enter_context(mock.patch.object(module, name, value))
        return played(policy, scene, costs)


def played(policy: str, scene: Scene, costs: Costs) -> Figures:
    cluster, jobs = _world(policy, costs), []
    dealt = dict.fromkeys(KINDS, 0)
    for number, submission in enumerate(trace(scene.trace)):
        job = job_of(number, submission, policy)
        job.physics.application = scene.on_kinds(submission.application)
        if policy == "apart":
            partition = min(KINDS, key=lambda kind: (dealt[kind] + 1) / (KINDS[kind][0] * KINDS[kind][1]))
            job.view = replace(job.view, group=partition)
            dealt[partition] += 1
        jobs.append(job)
    cluster.play(jobs)
    return figures(jobs, _alone_seconds(), cluster.cycles)


def _world(policy: str, costs: Costs) -> World:
    """Under `apart` a resource group and an instance group for each kind; else one of all."""
    apart = policy == "apart"
    groups = tuple(replace(group_of("soon"), name=kind, resource_group=kind) for kind in KINDS)
    return World(groups if apart else (group_of(policy),), costs, tuple(_slots(apart=apart)), process_time)


def _slots(*, apart: bool) -> Iterator[SlotView]:
    hosts = (kind for kind, (count, _) in KINDS.items() for _ in range(count))
    for number, kind in enumerate(hosts):
        for index in range(GPUS_PER_HOST):
            ref = SlotRef(f"h{number:02}", index)
            yield SlotView(ref, (kind if apart else "all",), claimable=True, device=kind)


@cache
def _alone_seconds() -> dict[str, float]:
    """Application -> seconds from submission to end on two slow hosts of its own."""
    found = {}
    for name, application in applications().items():
        job = job_of(0, Submission(name, 0.0, application, 1, application.largest_batch), "fairshare")
        job.physics.application = OnKinds(application, dict.fromkeys(KINDS, 0.0))
        slots = tuple(_slots(apart=False))
        World((group_of("fairshare"),), COSTS, slots[: 2 * GPUS_PER_HOST], process_time).play([job])
        found[name] = job.completion_seconds
    return found


def _print(name: str, policy: str, found: Figures, ratio: float) -> None:
    print(
        f"{name:24} {policy:22} average {found.average:7.1f} s {ratio:6.3f}  median {found.median:6.0f}  "
        f"99 % {found.p99:6.0f}  GPU-h {found.gpu_hours:5.0f}  resizes {found.resizes:5}  "
        f"rho {found.rho_mean:.2f} / {found.rho_worst:.2f}  cycles {found.cycles:5} x {found.cycle_ms:.2f} ms",
        flush=True,
    )


if __name__ == "__main__":
    main()
