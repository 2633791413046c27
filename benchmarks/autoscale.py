"""Cost and completion times on a pool that grows and shrinks, against the fixed pool of 16 hosts, by the simulator.

    python -m benchmarks.autoscale [--json FILE] [--trace workload-6 ...] [--worth 0.3 0.5 0.8] [--losses 0.25]
                                   [--notice 0 30 120] [--seed 1]

Trainings come as in a published trace, under policy goodput with aim `soon`, 30 s for a cold start and 1 s for a live
resize. The pool has up to 16 hosts of four GPUs. `capacity.scaling.decide` decides, as `manage.py autoscale` does, with
its usual seconds; a host takes two minutes to start. All hosts that are started count as cost from the request on,
whatever they do; the fixed pool counts from the first submission to the last end.

Losses: each host is taken away at random, `--losses` times an hour on average. With a notice it drains first. Without
one, trainings go on with their other hosts; who has no other starts again from its checkpoint, half a minute back.
"""

import argparse
import json
import os
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from time import process_time

import django

from benchmarks.simulator import group_of, job_of
from benchmarks.trace_files import GPUS_PER_HOST, HOSTS, trace, traces
from capacity.fleets import Fleet
from capacity.scaling import Decision, Situation, decide
from core.process import fitting_alone
from scheduling.capacity import HostShape, cheapest_to_leave, wanted_hosts, with_hosts
from scheduling.replay.world import Costs, Pool, Replayed, World
from scheduling.snapshot import SlotRef, SlotView

START_SECONDS = 120.0
#: Seconds between two looks of the autoscaler; it looks each two in the product, and holds changes for two minutes.
LOOK_SECONDS = 60.0
#: Seconds of work that a training loses with its last host: half of the time between two checkpoints.
LOST_SECONDS = 30.0
COSTS = Costs(30.0, 1.0)
SHAPE = HostShape(("all",), "", GPUS_PER_HOST)


@dataclass(frozen=True)
class Row:
    trace: str
    pool: str
    #: Seconds from submission to end, on average; GPU-hours that are paid for.
    average: float
    gpu_hours: float
    #: Both over those of the fixed pool.
    average_ratio: float
    cost_ratio: float
    started: int
    lost: int
    most_hosts: int
    cpu_seconds: float


@dataclass
class ScaledWorld(World):
    """A cluster whose hosts come and go by the product's decision."""

    fleet: Fleet = field(kw_only=True)
    chance: random.Random = field(kw_only=True)
    #: Losses of a host per hour, and seconds of notice.
    losses: float = 0.0
    notice: float = 0.0
    #: Host -> time of its request; hosts that are paid for.
    paid_since: dict[str, float] = field(default_factory=dict)
    coming: dict[str, float] = field(default_factory=dict)
    #: Host -> time at which it is taken away.
    taken_at: dict[str, float] = field(default_factory=dict)
    draining: set[str] = field(default_factory=set)
    paid_seconds: float = 0.0
    started: int = 0
    lost: int = 0
    most_hosts: int = 0
    changed_at: float | None = None
    surplus_since: float | None = None
    looked_at: float = -LOOK_SECONDS

    def _cycle(self) -> None:
        self._come_and_go()
        super()._cycle()
        if self.now - self.looked_at >= LOOK_SECONDS:
            self.looked_at = self.now
            self._look()
        self._wake_for_hosts()

    def _wake_for_hosts(self) -> None:
        """Have a cycle at the next look, arrival, notice or loss, as long as somebody may need it."""
        if not self._active and not self.paid_since:
            return
        due = [self.looked_at + LOOK_SECONDS, *self.coming.values()]
        due += [at for host, at in self.taken_at.items() if host not in self.coming]
        due += [at - self.notice for host, at in self.taken_at.items() if host not in self.draining]
        self._wake(min(at for at in due if at > self.now))

    # --- hosts --------------------------------------------------------------------------------------------------------

    def _come_and_go(self) -> None:
        for host in [host for host, at in self.coming.items() if at <= self.now]:
            del self.coming[host]
            refs = (SlotRef(host, index) for index in range(GPUS_PER_HOST))
            self._set_slots((*self.slots, *(SlotView(ref, ("all",), claimable=True) for ref in refs)))
        for host, at in sorted(self.taken_at.items()):
            if host not in self.coming and at <= self.now:
                self.lost += 1
                self._take_away(host)
            elif self.notice and at - self.notice <= self.now and host not in self.draining | self.coming.keys():
                self._drain(host)
        held = {ref.host for job in self._active.values() for ref in job.slots} | {ref.host for ref in self._leaving}
        for host in sorted(self.draining - held):
            self._take_away(host)

    def _set_slots(self, slots: tuple[SlotView, ...]) -> None:
        self._change(Pool(tuple(sorted(slots, key=lambda slot: slot.ref))))
        self._next_cycle = None

    def _drain(self, host: str) -> None:
        self.draining.add(host)
        self._set_slots(tuple(replace(one, claimable=one.claimable and one.ref.host != host) for one in self.slots))

    def _take_away(self, host: str) -> None:
        for job in self._active.values():
            if job.slots and {ref.host for ref in job.slots} == {host}:
                self._catch_up(job)
                _set_back(job)
        self._set_slots(tuple(one for one in self.slots if one.ref.host != host))
        self.paid_seconds += self.now - self.paid_since.pop(host)
        self.draining.discard(host)
        self.taken_at.pop(host, None)

    def pay_to_the_end(self) -> None:
        end = max(job.ended_at or 0.0 for job in self._jobs.values())
        self.paid_seconds += sum(max(0.0, end - since) for since in self.paid_since.values())
        self.paid_since.clear()

    # --- decisions ----------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        snapshot = self._snapshot()
        seen = with_hosts(snapshot, SHAPE, len(self.coming))
        hosts = tuple(sorted({slot.ref.host for slot in snapshot.slots if slot.claimable}))
        room = max(0, self.fleet.most - len(hosts) - len(self.coming))
        wanted = wanted_hosts(seen, SHAPE, room, self.fleet.worth)
        leaving = () if wanted.hosts else tuple(cheapest_to_leave(seen, hosts))
        stoppable = tuple(sorted(host for host in self.draining if host not in self._noticed()))
        decision = decide(
            self.fleet,
            Situation(
                self.now, hosts, len(self.coming), stoppable, changed_at=self.changed_at,
                surplus_since=self.surplus_since, wanted=wanted, leaving=leaving,
            ),
        )  # fmt: skip
        self.surplus_since = decision.surplus_since
        self._carry_out_change(decision)

    def _noticed(self) -> set[str]:
        return {host for host, at in self.taken_at.items() if at - self.notice <= self.now}

    def _carry_out_change(self, decision: Decision) -> None:
        if decision.action == "none":
            return
        self.changed_at = self.now
        for _ in range(decision.count):
            self._start()
        for host in decision.hosts:
            if decision.action == "stop":
                self._drain(host)
            else:
                self.draining.discard(host)
                kept = (replace(one, claimable=one.claimable or one.ref.host == host) for one in self.slots)
                self._set_slots(tuple(kept))
        self.most_hosts = max(self.most_hosts, len(self.paid_since))
        self._wake(self.now + 1.0)

    def _start(self) -> None:
        self.started += 1
        host = f"h{self.started:05}"
        self.paid_since[host] = self.now
        self.coming[host] = self.now + START_SECONDS
        if self.losses:
            self.taken_at[host] = self.coming[host] + self.chance.expovariate(self.losses / 3600)


def _set_back(job: Replayed) -> None:
    """Take back the work since the newest checkpoint, within the present epoch."""
    physics = job.physics
    if physics.placement:
        start = physics.application.epoch_ends[physics.epoch - 1] if physics.epoch else 0.0
        physics.progress = max(start, physics.progress - LOST_SECONDS * physics.rate())


def jobs_of(name: str) -> list[Replayed]:
    return [job_of(number, submission, "soon") for number, submission in enumerate(trace(name))]


def fixed(name: str) -> Row:
    began, jobs = process_time(), jobs_of(name)
    refs = (SlotRef(f"h{host:02}", index) for host in range(HOSTS) for index in range(GPUS_PER_HOST))
    slots = tuple(SlotView(ref, ("all",), claimable=True) for ref in refs)
    World((group_of("soon"),), COSTS, slots, process_time).play(jobs)
    average = fmean(job.completion_seconds for job in jobs)
    seconds = max(job.ended_at or 0.0 for job in jobs) - min(job.submitted_at for job in jobs)
    paid = seconds * HOSTS * GPUS_PER_HOST / 3600
    return Row(name, "fixed", average, paid, 1.0, 1.0, HOSTS, 0, HOSTS, process_time() - began)


def scaled(name: str, worth: float, losses: float, notice: float, seed: int, base: Row) -> Row:
    began, jobs = process_time(), jobs_of(name)
    fleet = Fleet("pool", ("all",), GPUS_PER_HOST, ("-",), most=HOSTS, worth=worth)
    world = ScaledWorld(
        (group_of("soon"),), COSTS, (), process_time, fleet=fleet, chance=random.Random(seed), losses=losses,
        notice=notice,
    )  # fmt: skip
    world.play(jobs)
    world.pay_to_the_end()
    average, paid = fmean(job.completion_seconds for job in jobs), world.paid_seconds * GPUS_PER_HOST / 3600
    label = f"worth {worth:g}" + (f", notice {notice:g} s" if losses else "")
    return Row(
        name, label, average, paid, average / base.average, paid / base.gpu_hours, world.started, world.lost,
        world.most_hosts, process_time() - began,
    )  # fmt: skip


def rows(options: argparse.Namespace) -> Iterator[Row]:
    for name in options.trace:
        base = fixed(name)
        yield base
        for worth in options.worth:
            yield scaled(name, worth, 0.0, 0.0, options.seed, base)
        for notice in options.notice:
            yield scaled(name, 0.5, options.losses, notice, options.seed, base)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--trace", nargs="+", choices=list(traces()), default=["workload-6"])
    parser.add_argument("--worth", nargs="*", type=float, default=[0.3, 0.5, 0.8])
    parser.add_argument("--losses", type=float, default=0.25, help="losses of a host in an hour")
    parser.add_argument("--notice", nargs="*", type=float, default=[0.0, 30.0, 120.0], help="seconds")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"  # for the plurals of sentences
    django.setup()
    found = []
    with fitting_alone():
        for row in rows(options):
            found.append(row)
            print(
                f"{row.trace:16} {row.pool:24} average {row.average:7.0f} s ({row.average_ratio:.2f})  "
                f"paid {row.gpu_hours:6.0f} GPU-h ({row.cost_ratio:.2f})  started {row.started:4}  lost {row.lost:3}  "
                f"most {row.most_hosts:2}  CPU {row.cpu_seconds:.0f} s",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in found], indent=1) + "\n")


if __name__ == "__main__":
    main()
