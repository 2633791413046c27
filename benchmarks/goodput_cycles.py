"""Cost of a whole cycle of the scheduler under policy goodput: snapshot in, plan with its sentences out.

    python -m benchmarks.goodput_cycles [--long] [--largest] [--json FILE]

Trainings whose batch may adapt share hosts of eight GPUs, three trainings on eight GPUs. Every cycle comes ten seconds
after the one before: each training has less left and has used more, a twentieth of them have been measured anew, one is
over and another one comes. Times are the processor's. `--long`: 1,000 cycles of each size instead of 200. `--largest`:
5 cycles each with 1,000 trainings on 10,000 GPUs and 10,000 on 100,000 instead. Then the same with three kinds of GPU,
each twice as fast as the one before, on which all were measured.
"""

import random
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
from tidepool.goodput.model import Bounds, NoiseScale, ThroughputParameters

from benchmarks.results import Result, arguments, result, show
from core.process import without_collector
from scheduling.policies.target_hold import TARGET_HOLD_SECONDS
from scheduling.preview import after_cycle
from scheduling.schedule import schedule
from scheduling.snapshot import GroupView, JobView, ProfileView, SlotRef, SlotView, Snapshot

#: (GPUs, trainings).
SIZES = ((64, 24), (512, 192), (2048, 768))
LARGEST = ((10_000, 1000), (100_000, 10_000))
GPUS_PER_HOST = 8
KINDS = ("slow", "medium", "fast")
#: Cycles before those that count: until nobody starts any more.
WARM_UP = 10
MEASURED_ANEW = 0.05


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--largest", action="store_true", help="only the largest sizes")
    options = parser.parse_args()
    cycles = 5 if options.largest else 1000 if options.long else 200
    found: list[Result] = []
    for (gpus, jobs), kinds in product(LARGEST if options.largest else SIZES, (("",), KINDS)):
        times = measured(gpus, jobs, cycles, kinds)
        name = f"{jobs} trainings on {gpus:,} GPUs" + (f" of {len(kinds)} kinds" if len(kinds) > 1 else "")
        found += [result(name, "ms", times), result(f"{name}, 99 %", "ms", [float(np.percentile(times, 99))])]
    show(found, options.json)


def measured(gpus: int, jobs: int, cycles: int, kinds: Sequence[str]) -> list[float]:
    """Milliseconds of each cycle."""
    dice = random.Random(gpus)
    snapshot = crowd(gpus, jobs, kinds, dice)
    times = []
    for _ in range(WARM_UP + cycles):
        with without_collector():
            begun = time.process_time()
            plan = schedule(snapshot)
            times.append(1000 * (time.process_time() - begun))
        snapshot = later(after_cycle(snapshot, {line.job: line for line in plan.jobs}), kinds, dice)
    return times[WARM_UP:]


def crowd(gpus: int, jobs: int, kinds: Sequence[str], dice: random.Random) -> Snapshot:
    refs = (SlotRef(f"host-{number // GPUS_PER_HOST:04d}", number % GPUS_PER_HOST) for number in range(gpus))
    return Snapshot(
        at=0.0,
        groups=(GroupView("research", "gpus", "goodput", preemption=True),),
        slots=tuple(
            SlotView(ref, ("gpus",), claimable=True, device=kinds[number // GPUS_PER_HOST % len(kinds)])
            for number, ref in enumerate(refs)
        ),
        jobs=tuple(training(number, 0.0, gpus, kinds, dice) for number in range(1, jobs + 1)),
    )


def training(number: int, at: float, gpus: int, kinds: Sequence[str], dice: random.Random) -> JobView:
    known = profile(kinds, dice)
    return JobView(number, f"T{number}", "research", "PENDING", 5000, at, 1, gpus, owner=number % 50, profile=known)


def profile(kinds: Sequence[str], dice: random.Random) -> ProfileView:
    sums = 10 ** dice.uniform(-3, 0)
    per_sample = dice.uniform(5e-4, 5e-3)
    return ProfileView(
        bounds=Bounds(128, 8192, 16, 256),
        parameters={
            kind: ThroughputParameters(0.01, per_sample / 2**place, sums, sums / 20, 2 * sums, sums / 20, 2.0)
            for place, kind in enumerate(kinds)
        },
        noise=NoiseScale(10 ** dice.uniform(2, 4), 1.0),
        largest_ranks=dice.choice((1, 4, 16, 64)),
        remaining_steps=10 ** dice.uniform(3, 6),
    )


def later(snapshot: Snapshot, kinds: Sequence[str], dice: random.Random) -> Snapshot:
    """Ten seconds later."""
    at = snapshot.at + TARGET_HOLD_SECONDS
    ended = dice.choice([job.id for job in snapshot.jobs if job.state == "RUNNING"])
    held: dict[int | None, int] = {}
    for slot in snapshot.slots:
        held[slot.held_by] = held.get(slot.held_by, 0) + 1
    jobs = [_went_on(job, held.get(job.id, 0), kinds, dice) for job in snapshot.jobs if job.id != ended]
    jobs.append(training(max(job.id for job in snapshot.jobs) + 1, at, len(snapshot.slots), kinds, dice))
    slots = tuple(
        replace(slot, held_by=None, vacating=False) if slot.held_by == ended else slot for slot in snapshot.slots
    )
    return replace(snapshot, at=at, jobs=tuple(jobs), slots=slots)


def _went_on(job: JobView, slots: int, kinds: Sequence[str], dice: random.Random) -> JobView:
    assert job.profile is not None
    assert job.profile.remaining_steps is not None
    seen = profile(kinds, dice) if dice.random() < MEASURED_ANEW else job.profile
    left = 0.99 * job.profile.remaining_steps
    return replace(
        job,
        gpu_seconds=job.gpu_seconds + slots * TARGET_HOLD_SECONDS,
        profile=replace(seen, remaining_steps=left, largest_ranks=max(job.profile.largest_ranks, slots)),
    )


if __name__ == "__main__":
    main()
