"""The actions that membership asks of the coordinator: messages, checkpoints to publish, journal entries."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from tidepool.protocol import CoordinatorMessage, GenerationPlan, MemberMessage, host_of
from tidepool.torch.failures import Failure
from tidepool.torch.pulses import Stuck

__all__ = [
    "Action",
    "Fence",
    "Publish",
    "Record",
    "Retry",
    "Send",
    "active_record",
    "failed_record",
    "planned_record",
    "stuck_record",
]


@dataclass(frozen=True)
class Send:
    member_id: str
    message: CoordinatorMessage


@dataclass(frozen=True)
class Fence:
    """Have the shim on `host` kill a rank that may no longer take part, whether or not it still receives messages."""

    member_id: str
    host: str
    why: str


@dataclass(frozen=True)
class Retry:
    """Have the shim on `host` start another rank where the script has ended this one."""

    member_id: str
    host: str


@dataclass(frozen=True)
class Publish:
    """Give the checkpoint that `member_id` has written its name; `published` or `not_published` says how that went."""

    member_id: str
    message: MemberMessage


@dataclass(frozen=True)
class Record:
    kind: str
    data: dict[str, Any]


Action = Send | Record | Fence | Retry | Publish


def stuck_record(stuck: Stuck, host: str, now: float) -> Record:
    data = {"member_id": stuck.member_id, "host": host, "silent": stuck.silent}
    return Record("rank_stuck", {**data, "seconds": round(stuck.seconds, 1), "why": stuck.why, "at": now})


def planned_record(plan: GenerationPlan, now: float) -> Record:
    members = [
        {"member_id": member.member_id, "host": member.host, "slot": member.slot, "holder": member.holder}
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


def active_record(plan: GenerationPlan, message: MemberMessage, now: float) -> Record:
    members = [
        {"member_id": member.member_id, "rank": rank, "host": member.host, "slot": member.slot}
        for rank, member in enumerate(plan.members)
    ]
    data = {
        "generation": plan.generation,
        "world_size": message.detail.get("world_size", len(members)),
        "step": message.step,
        "pause_ms": message.pause_ms,
        "target_revision": plan.target_revision,
        "cause": plan.cause,
        "members": members,
        "at": now,
    }
    return Record("generation_active", data)


def failed_record(kind: Literal["rank_failed", "failed"], failure: Failure, now: float) -> Record:
    """rank_failed: the others train on. failed: that would be of no use, the attempt is over."""
    place = {"host": host_of(failure.end.member_id), "step": failure.step, "generation": failure.generation}
    return Record(kind, {**asdict(failure.end), **place, "at": now})
