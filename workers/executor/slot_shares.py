"""The part of this host that each of its slots stands for, and what a training may use for each slot."""

from dataclasses import dataclass

from tidepool.cgroup_limits import usable

from workers.executor.config import ExecutorConfig
from workers.executor.devices.slot_devices import number_of_slots
from workers.executor.limits import Asked, Limits, limits_of

__all__ = ["SlotShare", "cores_to_use", "slot_limits", "slot_share"]


@dataclass(frozen=True)
class SlotShare:
    cores: float
    memory_bytes: int


def slot_share(config: ExecutorConfig) -> SlotShare:
    """Return what trainings may use of this host, divided by its slots."""
    can, slots = usable(), number_of_slots(config) or 1
    return SlotShare(
        max(0.0, can.cores - config.reserved_cores) / slots,
        max(0, can.memory_bytes - config.reserved_memory_bytes) // slots,
    )


def cores_to_use(config: ExecutorConfig) -> float:
    """Return the cores of a slot that a training without a wish can count on: its share, and no more than the limit."""
    share, limit = slot_share(config).cores, config.slot_limits.cores
    return share if limit is None or limit == "share" else min(share, limit)


def slot_limits(config: ExecutorConfig) -> Limits:
    """Return the limits of a training without wishes that has one slot."""
    share = slot_share(config)
    return limits_of(config.slot_limits, Asked(cores=share.cores, share_bytes=share.memory_bytes), 1)
