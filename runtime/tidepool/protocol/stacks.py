"""Stacks of the processes of a training, as a shim writes them for the control plane (a JSON file for each host)."""

from typing import Annotated, Literal

import msgspec

from tidepool.protocol.codec import PROTOCOL_VERSION, Count, Name, Seconds

__all__ = ["HostStacks", "ProcessStacks", "RankStacks", "StacksState"]

#: State of a process when its stacks were wanted. answered: it has written them. stopped: by SIGSTOP or a debugger.
#: in_kernel: it waits in the kernel, for a disk or a file system of the network, where no signal reaches it.
#: unable: it has no handler that writes stacks, because it is no Python, or has not begun or has replaced it.
#: silent: it has not written them in time. ended: it has ended.
StacksState = Literal["answered", "stopped", "in_kernel", "unable", "silent", "ended"]


class ProcessStacks(msgspec.Struct, frozen=True):
    pid: Count
    #: Name that the kernel has for the process, 15 characters.
    name: Annotated[str, msgspec.Meta(max_length=64)]
    state: StacksState
    #: Stacks of all its threads in faulthandler's form; "": it has written none.
    text: Annotated[str, msgspec.Meta(max_length=1_000_000)] = ""


class RankStacks(msgspec.Struct, frozen=True):
    member_id: Name
    slot: Count
    #: Processes of the rank: its own, then those that it has forked, such as workers of its data loader.
    processes: list[ProcessStacks]
    #: Number of further processes that were left out.
    left_out: Count = 0


class HostStacks(msgspec.Struct, frozen=True):
    """Answer of a host to the request of this number; it replaces the former one."""

    #: `DesiredJob.stacks` of the request.
    number: Count
    host: Name
    #: Unix seconds by the host's clock.
    at: Seconds
    #: Seconds from the request's arrival to the last answer.
    seconds: Seconds
    ranks: list[RankStacks]
    version: Literal[1] = PROTOCOL_VERSION
