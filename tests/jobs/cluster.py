"""A cluster without processes: a test lets hosts carry out their desired state, report, and turns the scheduler."""

import itertools
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Literal

from django.utils import timezone
from msgspec import structs
from tidepool.protocol import (
    DesiredJob,
    DeviceReading,
    EnvironmentState,
    HostFacts,
    JournalEntry,
    RankStatus,
    Report,
    Sync,
    to_json,
)

from jobs.control.dispatch import build_sync
from jobs.control.environments import ask_for
from jobs.control.plans import apply
from jobs.control.snapshots import snapshot
from jobs.models import Job, SchedulerLease
from jobs.tasks import ingest_report
from scheduling.preparation import run_prepared_cycle
from workers.models import Host

__all__ = ["Cluster", "FakeHost", "moment"]

_pids = itertools.count(1000)
_clock = itertools.count()


def moment() -> float:
    """Unix seconds that always grow."""
    return time.time() + next(_clock) * 1e-3


@dataclass
class FakeHost:
    name: str
    slots: int = 4
    boot: str = "boot-1"
    applied: int = 0
    ranks: dict[int, RankStatus] = field(default_factory=dict)
    journals: dict[str, list[tuple[str, dict[str, Any]]]] = field(default_factory=lambda: defaultdict(list))
    acknowledged: dict[str, int] = field(default_factory=dict)
    started: int = 0
    #: True if scripts save and exit with 0 at SIGTERM; else they die of it.
    saves_when_stopped: bool = False
    #: The step after which its trainings halt.
    halts_at: int = 1
    #: Whether it prepares environments, and their states by key.
    prepares: bool = False
    handshake: bool = True
    environments: dict[str, EnvironmentState] = field(default_factory=dict)
    #: Model of the host's GPUs.
    device: str = "virtual GPU (CPU)"
    #: Fleet that started the host.
    fleet: str = ""
    #: Further facts of its reports.
    facts: dict[str, Any] = field(default_factory=dict)

    def pull(self) -> Sync:
        """Carry out the desired state, as an executor and its shims do."""
        sync = build_sync(self.name)
        self.acknowledged |= sync.acknowledged
        self.applied = max(self.applied, sync.revision)
        for wanted in sync.environments:
            known = self.environments.get(wanted.key)
            if wanted.lines is not None and (known is None or known.number < wanted.number):
                self.environments[wanted.key] = EnvironmentState(wanted.key, wanted.number, "building")
        desired_jobs = {desired.job: desired for desired in sync.jobs}
        for rank in list({rank.member_id: rank for rank in self.ranks.values()}.values()):
            desired = desired_jobs.get(rank.job)
            if desired is None or desired.stop or desired.attempt != rank.attempt:
                end: dict[str, Any] = {"code": 0} if self.saves_when_stopped else {"signal": 15}
                self.end(rank.slot, **end, stopped=True)
        for desired in sync.jobs:
            if desired.halt:
                self._halt(desired)
            elif not desired.stop:
                is_single = desired.launch.engine == "single"  # one process holds all slots
                for slots in [sorted(desired.wanted)] if is_single else [[slot] for slot in desired.wanted]:
                    if slots and slots[0] not in self.ranks:
                        self.start(desired.job, desired.attempt, *slots)
        return sync

    def _halt(self, desired: DesiredJob) -> None:
        """The training stops by itself, after a step whose checkpoint the coordinator has published."""
        journal = self.journals[f"{desired.job}.{desired.attempt}.coordinator"]
        if desired.lead and "halted" not in [kind for kind, _ in journal]:
            journal.append(("halted", {"step": self.halts_at, "epoch": 0, "at": moment()}))
        for rank in [rank for rank in self.ranks.values() if rank.job == desired.job]:
            self.end(rank.slot, code=0)

    def start(self, job: int, attempt: int, slot: int, *others: int) -> None:
        """Start a rank in the slot, which holds others, too."""
        self.started += 1
        rank = RankStatus(
            job=job,
            attempt=attempt,
            slot=slot,
            member_id=f"{self.name}.{slot}.{self.started}",
            pid=next(_pids),
            started_at=moment(),
            state="RUNNING",
        )
        self.ranks |= {each: structs.replace(rank, slot=each) for each in (slot, *others)}
        data = {
            "member_id": rank.member_id,
            "slot": slot,
            "pid": rank.pid,
            "started_at": rank.started_at,
            "at": moment(),
        }
        self._keep(rank, "rank_started", data)

    def end(
        self,
        slot: int,
        code: int | None = None,
        signal: int | None = None,
        error: dict[str, Any] | None = None,
        *,
        stopped: bool = False,
        step: int | None = None,
    ) -> None:
        rank = self.ranks[slot]
        self.ranks = {each: other for each, other in self.ranks.items() if other.member_id != rank.member_id}
        data: dict[str, Any] = {
            "member_id": rank.member_id,
            "slot": slot,
            "pid": rank.pid,
            "code": code,
            "signal": signal,
        }
        data |= {"error": error, "stopped": stopped, "step": step}
        self._keep(rank, "rank_exited", {**data, "at": moment()})

    def _keep(self, rank: RankStatus, kind: str, data: dict[str, Any]) -> None:
        self.journals[f"{rank.job}.{rank.attempt}.shim.{self.name}"].append((kind, data))

    def write(self, job: Job, journal: str, kind: str, **data: Any) -> None:
        self.journals[f"{job.pk}.{job.run.attempt}.{journal}"].append((kind, {"at": moment(), **data}))

    def report(self, **changes: Any) -> dict[str, Any]:
        """Return the report that it would send now, as JSON."""
        entries = [
            JournalEntry(name, number, kind, data)
            for name, lines in self.journals.items()
            for number, (kind, data) in enumerate(lines, start=1)
            if number > self.acknowledged.get(name, 0)
        ]
        values: dict[str, Any] = {
            "host": self.name,
            "boot": self.boot,
            "at": moment(),
            "applied_revision": self.applied,
            "facts": HostFacts(
                *("127.0.0.1", 8, self.slots, 16 * 1024**3, True),
                prepares=self.prepares,
                handshake=self.handshake,
                fleet=self.fleet,
                **self.facts,
            ),
            "devices": [
                DeviceReading(slot, self.device, True, 50.0 if slot in self.ranks else 0.0, None, None)
                for slot in range(self.slots)
            ],
            "ranks": list(self.ranks.values()),
            "entries": entries,
            "environments": [*self.environments.values()] if self.prepares else None,
        }
        return to_json(Report(**{**values, **changes}))

    def answer(self, state: Literal["ready", "failed"], **values: Any) -> None:
        """Be over with all that it builds, and tell."""
        for key, one in self.environments.items():
            if one.state == "building":
                self.environments[key] = structs.replace(one, state=state, **values)
        self.send()

    def enroll(self) -> "FakeHost":
        """Enroll a host as `manage.py up` does, or a join token."""
        Host.objects.get_or_create(name=self.name)
        return self

    def send(self, **changes: Any) -> None:
        ingest_report(self.report(**changes))


@dataclass
class Cluster:
    hosts: dict[str, FakeHost]
    epoch: int = 1
    generation: int = 0

    @classmethod
    def of(cls, *names: str, slots: int = 4) -> "Cluster":
        SchedulerLease.objects.update_or_create(pk=1, defaults={"epoch": 1})
        cluster = cls({name: FakeHost(name, slots).enroll() for name in names})
        cluster.report()
        return cluster

    def report(self) -> None:
        for host in self.hosts.values():
            host.send()

    def pull(self) -> None:
        for host in self.hosts.values():
            host.pull()

    def cycle(self) -> list[int]:
        cycle = run_prepared_cycle(snapshot(timezone.now()))
        moved = apply(cycle.plan(), self.epoch)
        ask_for(cycle.wanted)
        return moved

    def turn(self, times: int = 1) -> None:
        """Decide, carry out, report."""
        for _ in range(times):
            self.cycle()
            self.pull()
            self.report()

    def settle(self) -> None:
        """Until nothing is left to carry out: desired states and reports without decisions."""
        for _ in range(3):
            self.pull()
            self.report()

    def ranks(self, job: Job) -> list[RankStatus]:
        return [rank for host in self.hosts.values() for rank in host.ranks.values() if rank.job == job.pk]

    def train(self, job: Job, step: int = 1, *, plain: bool = False, **metrics: float | None) -> None:
        """The ranks that the target names form a generation at a step boundary, and those that leave do so.

        A plain script reports no steps.
        """
        job.refresh_from_db()
        lead = self.hosts[job.run.lead_host]
        desired = next(desired for desired in build_sync(lead.name).jobs if desired.job == job.pk)
        places = [(member.host, member.slot) for member in desired.members]
        members = [
            {"member_id": self.hosts[host].ranks[slot].member_id, "rank": number, "host": host, "slot": slot}
            for number, (host, slot) in enumerate(places)
        ]
        self.generation += 1
        lead.write(
            job,
            "coordinator",
            "generation_active",
            generation=self.generation,
            world_size=len(members),
            step=step,
            pause_ms=12.5,
            target_revision=desired.target_revision,
            members=members,
            cause="resize",
        )
        for rank in self.ranks(job):
            if (rank.member_id.split(".")[0], rank.slot) not in places:
                self.hosts[rank.member_id.split(".")[0]].end(rank.slot, code=0)
        if not plain:
            self.log_step(job, step, **metrics)
        self.report()

    def log_step(self, job: Job, step: int, **metrics: float | None) -> None:
        lead = self.hosts[job.run.lead_host]
        place = {"cursor": step * 64, "samples": 64, "world_size": 1, "generation": 1, "attempt": job.run.attempt}
        lead.write(job, "metrics", "step", step=step, epoch=0, **place, progress=min(1.0, step / 100), **metrics)

    def finish(self, job: Job, step: int = 100) -> None:
        """The training is complete: final weights written, every rank exits by itself."""
        job.refresh_from_db()
        self.hosts[job.run.lead_host].write(job, "coordinator", "finished", step=step, epoch=1)
        for host in self.hosts.values():
            for rank in [rank for rank in host.ranks.values() if rank.job == job.pk]:
                host.end(rank.slot, code=0)
        self.report()
