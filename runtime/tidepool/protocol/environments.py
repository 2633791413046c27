"""Environments that the control plane wants on a host, and their states there."""

from typing import Annotated, Literal

import msgspec

from tidepool.protocol.codec import Bytes, Count, Name

__all__ = ["EnvironmentState", "WantedEnvironment"]


class WantedEnvironment(msgspec.Struct, frozen=True):
    """An environment that a host is to have, whether or not a job runs there: it is built before a job gets slots."""

    #: Digest of the requirements.
    key: str
    #: Number of the newest request for it.
    number: int
    #: A line for each requirement; None: the host has answered this request, and knows them.
    lines: str | None = None
    #: File that gets the output of its build.
    log: str = ""
    #: Whether it stays although no job here uses it.
    is_kept: bool = True
    #: Whether it is built again although it is there.
    is_fresh: bool = False


class EnvironmentState(msgspec.Struct, frozen=True):
    """State of a `WantedEnvironment` on a host."""

    key: Name
    #: Number of the request that is answered.
    number: Count
    state: Literal["building", "ready", "failed"]
    #: Name of the environment on this host; "": the cluster's packages meet the requirements.
    digest: Name = ""
    #: Why its build failed.
    why: Annotated[str, msgspec.Meta(max_length=10_000)] = ""
    #: Size of its files, which may be shared with others; None: unknown.
    size_bytes: Bytes | None = None
    #: Memory of its forkserver that is no other process's; None: it has none.
    memory_bytes: Bytes | None = None
