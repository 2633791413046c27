"""What the coordinator is to do: lines for ranks and keepers, checkpoints to publish, entries for its journal."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from tidepool.protocol import GenerationPlan, Said, Told, host_of
from tidepool.torch.failures import Failure
from tidepool.torch.pulses import Stuck

__all__ = [
    "Action",
    "Fence",
    "Publish",
    "Record",
    "Retry",
    "Tell",
    "active_record",
    "failed_record",
    "planned_record",
    "stuck_record",
]


@dataclass(frozen=True)
class Tell:
    wid: str
    told: Told


@dataclass(frozen=True)
class Fence:
    """Have the keeper on `host` kill a rank that does not hear us any more, or may not."""

    wid: str
    host: str
    why: str


@dataclass(frozen=True)
class Retry:
    """Have the keeper on `host` start another rank where the script has ended this one."""

    wid: str
    host: str


@dataclass(frozen=True)
class Publish:
    """Give the checkpoint that `wid` has written its name; `published` or `not_published` says how that went."""

    wid: str
    said: Said


@dataclass(frozen=True)
class Record:
    kind: str
    data: dict[str, Any]


Action = Tell | Record | Fence | Retry | Publish


def stuck_record(stuck: Stuck, host: str, now: float) -> Record:
    data = {"wid": stuck.wid, "host": host, "silent": stuck.silent}
    return Record("rank_stuck", {**data, "seconds": round(stuck.seconds, 1), "why": stuck.why, "at": now})


def planned_record(plan: GenerationPlan, now: float) -> Record:
    members = [
        {"wid": member.wid, "host": member.host, "slot": member.slot, "holder": member.holder}
        for member in plan.members
    ]
    data = {
        "generation": plan.generation,
        "members": members,
        "target_revision": plan.target_revision,
        "cause": plan.cause,
        "at": now,
    }
    return Record("generation_planned", data)


def active_record(plan: GenerationPlan, said: Said, now: float) -> Record:
    members = [
        {"wid": member.wid, "rank": rank, "host": member.host, "slot": member.slot}
        for rank, member in enumerate(plan.members)
    ]
    data = {
        "generation": plan.generation,
        "world_size": said.detail.get("world_size", len(members)),
        "step": said.step,
        "pause_ms": said.pause_ms,
        "target_revision": plan.target_revision,
        "cause": plan.cause,
        "members": members,
        "at": now,
    }
    return Record("generation_active", data)


def failed_record(kind: Literal["rank_failed", "failed"], failure: Failure, now: float) -> Record:
    """rank_failed: the others train on. failed: that would be of no use, the incarnation is over."""
    place = {"host": host_of(failure.end.wid), "step": failure.step, "generation": failure.generation}
    return Record(kind, {**asdict(failure.end), **place, "at": now})
