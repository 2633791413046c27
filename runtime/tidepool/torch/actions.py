"""The actions that membership asks of the coordinator: messages, checkpoints to publish, journal entries."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from tidepool.protocol import (
    ActiveMember,
    AttemptFailed,
    CoordinatorMessage,
    Entry,
    GenerationActive,
    GenerationPlan,
    GenerationPlanned,
    MemberMessage,
    RankFailed,
    RankStuck,
    host_of,
)
from tidepool.torch.failures import Failure
from tidepool.torch.pulses import Stuck

__all__ = [
    "Action",
    "Fence",
    "Publish",
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


Action = Send | Entry | Fence | Retry | Publish


def stuck_record(stuck: Stuck, host: str, now: float) -> RankStuck:
    return RankStuck(stuck.member_id, host, stuck.silent, round(stuck.seconds, 1), stuck.why, at=now)


def planned_record(plan: GenerationPlan, now: float) -> GenerationPlanned:
    return GenerationPlanned(plan.generation, plan.members, plan.target_revision, plan.cause, at=now)


def active_record(plan: GenerationPlan, message: MemberMessage, now: float) -> GenerationActive:
    return GenerationActive(
        generation=plan.generation,
        world_size=message.detail.get("world_size", len(plan.members)),
        step=message.step,
        pause_ms=message.pause_ms,
        target_revision=plan.target_revision,
        cause=plan.cause,
        members=[
            ActiveMember(member.member_id, rank, member.host, member.slot) for rank, member in enumerate(plan.members)
        ],
        at=now,
    )


def failed_record(kind: type[RankFailed | AttemptFailed], failure: Failure, now: float) -> RankFailed | AttemptFailed:
    return kind(
        **msgspec.structs.asdict(failure.end),
        host=host_of(failure.end.member_id),
        step=failure.step,
        generation=failure.generation,
        at=now,
    )
