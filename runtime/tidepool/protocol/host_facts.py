"""A host's description of itself, in each of its reports."""

from typing import Annotated, Literal

import msgspec

from tidepool.protocol.codec import Bytes, Count, Name

__all__ = ["HostFacts"]


class HostFacts(msgspec.Struct, frozen=True):
    """A host's hardware; attributes that slot formulas read."""

    #: Address where other hosts reach this one: 127.0.0.1 for the embedded stack's virtual hosts.
    address: Name
    ncpus: Count
    ngpus: Count
    memory_bytes: Bytes
    virtual: bool
    #: Processors (sockets), cores of each, and threads of each core; None where the kernel does not tell.
    nprocs: Count | None = None
    ncores: Count | None = None
    nthreads: Count | None = None
    swap_bytes: Bytes | None = None
    #: Name of the solver of conda that the host has; "": none.
    conda: Annotated[str, msgspec.Meta(max_length=16)] = ""
    #: Name of the program by which the host runs container images; "": none. Executors that do not tell want podman.
    images: Annotated[str, msgspec.Meta(max_length=16)] = "podman"
    #: Whether the host builds environments before jobs get its slots, and tells their states.
    prepares: bool = False
    #: Name of the fleet that started the host; "": it was not started by one.
    fleet: Annotated[str, msgspec.Meta(max_length=64)] = ""
    #: Level of isolation of its trainings, see `tidepool.confine.levels`; none: it lacks the level that was chosen, so
    #: it runs no training. "": not known yet.
    isolation: Literal["", "walled", "separate", "sealed", "shared", "none"] = ""
    #: A sentence for each thing that it does not keep trainings from.
    isolation_lacks: Annotated[list[Annotated[str, msgspec.Meta(max_length=500)]], msgspec.Meta(max_length=16)] = []
    #: Versions of driver, CUDA, torch and NCCL; "": a host of virtual GPUs.
    gpu_software: Annotated[str, msgspec.Meta(max_length=500)] = ""
    #: Sentence on what keeps trainings from the host's GPUs, with the remedy; "": nothing.
    gpu_problem: Annotated[str, msgspec.Meta(max_length=500)] = ""
    #: Whether processes of trainings that are started here know `tidepool.handshake`.
    handshake: bool = False
    #: Processors that its processes may use, by its affinity and its cgroup; None: executors of former releases.
    cores: Annotated[float, msgspec.Meta(ge=0, le=2**20)] | None = None
    #: Memory that its processes may use, by its cgroup; None: executors of former releases.
    usable_memory_bytes: Bytes | None = None
    #: Parts of both that its operator keeps for other programs than trainings.
    reserved_cores: Annotated[float, msgspec.Meta(ge=0, le=2**20)] = 0.0
    reserved_memory_bytes: Bytes = 0
    #: Limits of what a training without wishes may use there for each slot; None: there is none.
    slot_memory_bytes: Bytes | None = None
    slot_cores: Annotated[float, msgspec.Meta(ge=0, le=2**20)] | None = None
    slot_processes: Count | None = None
