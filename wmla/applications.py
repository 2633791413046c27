"""Trainings as the applications of WMLA's schedulers, Conductor's and Cloud Pak's, with driver and executors.

The driver is the training's coordinator, its output is that of rank 0; each rank is an executor. What is not measured
here (memory and processors of a training's processes) is null, and never a guess.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models import F

from core.time import iso
from jobs.models import Generation, InstanceGroup, Job, Rank, SlotClaim
from jobs.states import TERMINAL, RankState
from wmla.identities import Dialect, Submitted
from wmla.lookup import identities, submitted
from wmla.messages import state_word

__all__ = [
    "Executor",
    "consumer_of",
    "engine_applications",
    "executors_of",
    "listed_applications",
    "scheduled_applications",
]

_MEBIBYTE = 1024**2
_CONDUCTOR = "/platform/rest/conductor/v1"
_EXECUTOR_WORDS = {RankState.RUNNING: "RUNNING", RankState.STOPPING: "RUNNING", RankState.LOST: "LOST"}


@dataclass(frozen=True)
class Executor:
    """A rank with its present or last number; None if it never trained."""

    rank: Rank
    number: int | None

    @property
    def id(self) -> str:
        """Identifier that begins with the rank's number, or else with that of its slot, which no neighbour has."""
        rank = self.rank
        number = rank.slot if self.number is None else self.number
        return identities().executor_id(rank.job_id, rank.attempt, rank.member_id, number)


@dataclass
class _Held:
    """The resources of a training now, and the executors of its newest attempt, also after its end."""

    #: Host, percent and bytes of each GPU; None for what it does not tell.
    gpus: list[tuple[str, float | None, int | None]] = field(default_factory=list)
    executors: list[Executor] = field(default_factory=list)

    @property
    def memory_mebibytes(self) -> int | None:
        """Sum over the GPUs that report it; None if none does."""
        told = [used for _, _, used in self.gpus if used is not None]
        return round(sum(told) / _MEBIBYTE) if told or not self.gpus else None

    @property
    def utilisation_percent(self) -> float | None:
        """Sum over the GPUs: 200 for two that are fully busy."""
        told = [percent for _, percent, _ in self.gpus if percent is not None]
        return round(sum(told), 1) if told or not self.gpus else None


def listed_applications(jobs: Sequence[Job], now: datetime, dialect: str | None = None) -> list[dict[str, Any]]:
    """Return applications as Conductor lists them, in a fixed number of queries.

    dialect: whose ids and words are used; None: that in which each was submitted.
    """
    held = _held_by(jobs)
    return [_listed(job, held[job.pk], now, dialect) for job in jobs]


def scheduled_applications(jobs: Sequence[Job], now: datetime) -> list[dict[str, Any]]:
    """Return applications as `/scheduler/applications` does: by `task0` and `task12n` clients find logs."""
    rows = listed_applications(jobs, now)
    return [{**row, "task0": [row["driver"]], "task12n": row["executors"]} for row in rows]


def engine_applications(jobs: Sequence[Job]) -> list[dict[str, Any]]:
    """Return applications as `/scheduler/engine/applications` does, in Cloud Pak's ids and words and Unix seconds."""
    held = _held_by(jobs)
    return [_of_engine(job, held[job.pk]) for job in jobs]


def executors_of(jobs: Iterable[Job]) -> dict[int, list[Executor]]:
    """Return job -> its executors: first those that train, then those that did at its end, by their numbers."""
    numbers = _numbers_in_newest_generation(jobs)
    found: dict[int, list[Executor]] = defaultdict(list)
    for rank in Rank.objects.filter(job__in=jobs, attempt=F("job__run__attempt")).order_by("job", "id"):
        last = numbers.get((rank.job_id, rank.member_id))
        found[rank.job_id].append(Executor(rank, rank.rank if rank.rank is not None else last))
    for executors in found.values():
        executors.sort(key=lambda each: (each.rank.rank is None, each.number is None, each.number or 0, each.rank.pk))
    return found


def _numbers_in_newest_generation(jobs: Iterable[Job]) -> dict[tuple[int, str], int]:
    """Return (job, member_id) -> number; ranks that have ended have none any more."""
    newest = Generation.objects.filter(
        job__in=jobs, attempt=F("job__run__attempt"), number=F("job__run__generation")
    ).order_by()
    return {
        (job, member["member_id"]): member["rank"]
        for job, members in newest.values_list("job", "members")
        for member in members
    }


def consumer_of(group: InstanceGroup) -> str:
    """Return its path in the tree of consumers, which has one level here."""
    return f"/{group.name}"


def _held_by(jobs: Sequence[Job]) -> dict[int, _Held]:
    executors = executors_of(jobs)
    held = {job.pk: _Held(executors=executors.get(job.pk, [])) for job in jobs}
    claims = SlotClaim.objects.filter(released_at__isnull=True, job__in=jobs).order_by()
    columns = ("slot__host__name", "slot__reading__utilisation_percent", "slot__reading__memory_used_bytes")
    for job, host, percent, used in claims.values_list("job", *columns):
        held[job].gpus.append((host, percent, used))
    return held


def _listed(job: Job, held: _Held, now: datetime, dialect: str | None) -> dict[str, Any]:
    of = submitted(job) if dialect is None else _in(submitted(job), dialect)
    ids, state = identities(), state_word(job.state, of.dialect)
    driver = {**_driver(job, state, ids.submission_id(of)), **_driver_logs(job, ids.driver_id(of))}
    return {
        "sparkinstancegroupid": ids.group_id(job.instance_group_id),
        "sigName": job.instance_group.name,
        "applicationid": ids.app_id(of),
        "applicationname": job.name,
        "type": "BATCH",
        "state": state,
        "uiport": None,
        "driver": driver,
        "executors": [_executor(each) for each in held.executors],
        "slots": len(held.gpus),
        "gpuslots": len(held.gpus),
        "demandslots": 0 if job.state in TERMINAL else job.max_slots,
        "hosts": len({host for host, _, _ in held.gpus}),
        "coresused": None,
        "memused": None,
        "gpumemused": {"total": held.memory_mebibytes},
        "gpudevutil": {"total": held.utilisation_percent},
        "username": of.user,
        "priority": job.priority,
        "submittedtime": iso(job.submitted_at),
        "endtime": iso(job.finished_at),
        "apprunduration": _minutes(job, now),
        "model": job.model.model.name,
        "dataset": job.dataset.dataset.name,
        "dltype": job.model.framework,
        "tunningname": "",
    }


def _of_engine(job: Job, held: _Held) -> dict[str, Any]:
    of = _in(submitted(job), Dialect.CLOUD_PAK)
    ids, consumer = identities(), consumer_of(job.instance_group)
    state = state_word(job.state, of.dialect)
    return {
        "id": ids.app_id(of),
        "consumer": consumer,
        "submit_user": of.user,
        "tag": f"{consumer}/{of.user}",
        "name": job.name,
        "priority": job.priority,
        "type": "BATCH",
        "state": state,
        "task12n_num": len(held.gpus),
        "task0_resreq": "ngpus=0",
        "task12n_resreq": "ngpus=1",
        "used_gpu": len(held.gpus),
        "used_mem": None,
        "used_cpu": None,
        "submit_time": _unix(job.submitted_at),
        "start_time": _unix(job.started_at),
        "end_time": _unix(job.finished_at),
        "is_packing": False,
        "pack_id": "",
        "kernels": [],
        "task0": [_driver(job, state, ids.submission_id(of))],
        "task12n": [_executor(each) for each in held.executors],
    }


def _driver(job: Job, state: str, driver_id: str) -> dict[str, Any]:
    return {
        "id": driver_id,
        "containerid": None,
        "state": state,
        "host": job.run.lead_host or None,
        "coresused": None,
        "memused": None,
        "timestamp": iso(job.started_at),
    }


def _driver_logs(job: Job, driver_id: str) -> dict[str, str]:
    address = f"{_CONDUCTOR}/instances/{identities().group_id(job.instance_group_id)}/applications/{driver_id}/logs"
    return {f"driver{stream}": f"{address}/{stream}/download" for stream in ("stdout", "stderr")}


def _executor(executor: Executor) -> dict[str, Any]:
    rank = executor.rank
    return {
        "id": executor.id,
        "state": _executor_word(rank),
        "host": rank.host,
        "slot": rank.slot,
        "rank": rank.rank,
    }


def _executor_word(rank: Rank) -> str:
    if not rank.exit:
        return _EXECUTOR_WORDS.get(RankState(rank.state), "LAUNCHING")
    if rank.exit.get("signal"):
        return "KILLED"
    return "FINISHED" if rank.exit.get("code") == 0 else "ERROR"


def _minutes(job: Job, now: datetime) -> float:
    if job.started_at is None:
        return 0.0
    return round(max(0.0, ((job.finished_at or now) - job.started_at).total_seconds()) / 60, 4)


def _unix(moment: datetime | None) -> int | None:
    """Return whole Unix seconds: WMLA's own command line computes with nothing but an int."""
    return None if moment is None else int(moment.timestamp())


def _in(of: Submitted, dialect: str) -> Submitted:
    return Submitted(of.job, of.user, of.at, dialect)
