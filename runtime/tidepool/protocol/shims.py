"""Messages between a job's coordinator and the shims of its hosts (JSON lines over TCP), and a shim's arguments."""

from typing import Any, Literal

import msgspec

from tidepool.protocol.codec import PROTOCOL_VERSION
from tidepool.protocol.given_secrets import GivenSecret
from tidepool.protocol.messages import LaunchSpec

__all__ = ["RankEnd", "ShimCommand", "ShimJoin", "ShimSpec"]


class RankEnd(msgspec.Struct, frozen=True):
    """A rank's end. Exactly one of `code` and `signal` is set."""

    member_id: str
    slot: int
    code: int | None
    signal: int | None
    #: The script's doing, which will happen again: an error, an exit code, a crash, a lack of memory.
    by_script: bool
    #: {"kind", "message", "traceback"}, and "step" if it is known.
    error: dict[str, Any] | None


class ShimJoin(msgspec.Struct, frozen=True):
    """A shim's line on each connection to the coordinator, and again whenever a rank of its has ended."""

    job: int
    attempt: int
    host: str
    #: Present ranks of the host: any other rank is dead.
    living: list[str]
    #: Newest ranks that their script ended, by an error or well, reported before or not.
    ended: list[RankEnd] = []
    version: Literal[1] = PROTOCOL_VERSION


class ShimCommand(msgspec.Struct, frozen=True):
    """A coordinator to a shim.

    fence: kill the rank `member_id` and all that it started, at once. abort: the same, after its stacks are written.
    retry: start another one in its slot, which was ended by its script's error: the training has got past that.
    """

    kind: Literal["fence", "abort", "retry"]
    member_id: str
    why: str = ""
    #: Kind of error of the rank's end, from `rank_exits.py`.
    error: str = "Stuck"


class ShimSpec(msgspec.Struct, frozen=True):
    """Arguments of a shim's fork; everything that changes comes as DesiredJob lines."""

    job: int
    attempt: int
    host: str
    #: Address that the ranks bind to.
    address: str
    #: Names this installation's processes on this host; see `tidepool.procfs.set_mark`.
    mark: str
    #: The host's slots are no real GPUs: hide those that the machine may have.
    virtual: bool
    launch: LaunchSpec
    #: Slots that share a real GPU: slot s is on GPU s // slots_per_gpu.
    slots_per_gpu: int = 1
    #: Folder on this host of the virtual environment with what the job requires; "": it requires nothing.
    environment: str = ""
    #: UUIDs of the host's real GPUs, in the order of their slots; empty: known by number only.
    gpus: tuple[str, ...] = ()
    #: See `DesiredJob.secret`.
    secret: str = ""
    #: Secrets of users that the script gets.
    user_secrets: tuple[GivenSecret, ...] = ()
    #: Cores that each of the host's slots stands for.
    slot_cores: float = 1.0
    #: List of the CPUs near each GPU, in the order of `gpus`; "": not known.
    near_cpus: tuple[str, ...] = ()
    #: Whether ranks have as many threads as cores; False: the host's operator has set a number for all processes.
    sets_threads: bool = True
    #: Bytes of temporary files that the job may have for each slot; None: as many as there is room for.
    slot_scratch_bytes: int | None = None
    version: Literal[1] = PROTOCOL_VERSION

    @property
    def cores_per_slot(self) -> float:
        """Cores that the job has with each slot: those that it asked for, or the slot's share of the host."""
        return self.launch.cpus_per_gpu or self.slot_cores
