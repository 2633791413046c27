"""Question of a rank's process to the coordinator, before it has joined, and its answer."""

from typing import Literal

import msgspec

from tidepool.protocol.codec import PROTOCOL_VERSION

__all__ = ["AskFirst", "FirstAnswer"]


class AskFirst(msgspec.Struct, frozen=True):
    """A rank's process asks whether it comes first, before it has joined. `asks_first`: its member_id."""

    job: int
    attempt: int
    asks_first: str
    version: Literal[1] = PROTOCOL_VERSION


class FirstAnswer(msgspec.Struct, frozen=True):
    is_first: bool
