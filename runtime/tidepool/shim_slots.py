"""A shim's record of its slots and the ranks in them, and the GPU that a slot stands for."""

import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tidepool.rank_cpus import cpus_near
from tidepool.user_secrets import RankLogs

__all__ = ["VIRTUAL_MODEL", "RankProcess", "Slot", "SlotGpus", "gpu_of"]

#: Model of a slot without a GPU, among the models of GPUs.
VIRTUAL_MODEL = "virtual GPU (CPU)"


def gpu_of(slot: int, slots_per_gpu: int) -> int:
    """Return the number of the GPU among its host's that a slot stands for."""
    return slot // slots_per_gpu


@dataclass(frozen=True)
class SlotGpus:
    """The real GPUs of a host's slots."""

    slots_per_gpu: int = 1
    #: UUIDs of the GPUs, or of MIG instances. A number would name another GPU as soon as one drops out.
    uuids: tuple[str, ...] = ()
    #: List of the CPUs near each GPU, in the order of `uuids`; "": not known.
    near_cpus: tuple[str, ...] = ()

    def of(self, slots: Iterable[int]) -> tuple[str, ...]:
        """Return the names of the slots' GPUs for CUDA_VISIBLE_DEVICES, each once."""
        return tuple(dict.fromkeys(self.name(slot) for slot in slots))

    def near(self, slots: Iterable[int]) -> frozenset[int]:
        """Return the CPUs near any of the slots' GPUs; empty: they are not known of all."""
        numbers = {gpu_of(slot, self.slots_per_gpu) for slot in slots}
        return cpus_near([self.near_cpus[number] if number < len(self.near_cpus) else "" for number in numbers])

    def name(self, slot: int) -> str:
        """Return the UUID of the slot's GPU, or its number while no UUID is known."""
        number = gpu_of(slot, self.slots_per_gpu)
        return self.uuids[number] if number < len(self.uuids) else str(number)


@dataclass
class RankProcess:
    member_id: str
    slot: int
    #: All slots that the process holds, `slot` among them.
    slots: tuple[int, ...]
    pid: int
    #: The same process, as the host counts.
    host_pid: int
    started_at: float
    log_dir: Path
    #: The shim's end of the socket pair, by which each side notices the other's end.
    connection: socket.socket
    state: Literal["LAUNCHING", "RUNNING", "STOPPING"] = "LAUNCHING"
    #: Monotonic time at which SIGKILL follows SIGTERM.
    kill_at: float | None = None
    #: Whether its slot was released by a desired state since it started: its end does not affect the slot's next rank.
    released: bool = False
    #: Kind of error and sentence, if the coordinator had it killed.
    fenced: tuple[str, str] | None = None
    #: Monotonic time by which its script must be ready to train; None: it is ready, or has no limit.
    ready_by: float | None = None
    #: True if the rank was not ready in time, and is killed for that.
    late: bool = False
    #: Stdout and stderr of the rank, if the shim writes them, masked.
    logs: RankLogs = field(default_factory=RankLogs)

    @property
    def deadline(self) -> float | None:
        """Monotonic time at which it is late, or to be killed."""
        if self.kill_at is not None:
            return self.kill_at
        return self.ready_by if self.fenced is None else None


@dataclass
class Slot:
    restarts: int = 0
    #: Monotonic time before which no rank is started here.
    start_at: float = 0.0
    #: True after the slot's rank ended by itself: none is started until the slot has been released.
    pinned: bool = False
