"""The question of a process, before its training has begun, whether it is the first one.

The coordinator names one and begins with it; to a process that comes while others train it says no. The question takes
a connection of its own, since a script may ask before it has a session.
"""

import json
import time
from contextlib import suppress

from tidepool.env import RankContext
from tidepool.handshake import introduce
from tidepool.json_sockets import connect_tcp
from tidepool.protocol import AskFirst, FirstAnswer, ProtocolError, decode, encode

__all__ = ["is_named_first"]

_CONNECT_SECONDS = 5.0
_RETRY_SECONDS = 0.2


def is_named_first(context: RankContext) -> bool:
    """Return the coordinator's answer. Waits for a coordinator that is away.

    A process that the rank's has started does not know the secret, and is not the first.
    """
    question = encode(AskFirst(context.job, context.attempt, asks_first=context.member_id))
    while True:
        with suppress(OSError, ValueError, ProtocolError):  # the coordinator is not there yet, or is being replaced
            place = json.loads((context.folder / "coordinator.json").read_text())
            if place.get("ended"):
                return False
            if place.get("handshake") and not context.secret:
                return False
            with connect_tcp((place["address"], place["port"]), _CONNECT_SECONDS) as connection:
                introduce(connection, context.secret, "coordinator")
                connection.sendall(question)
                with connection.makefile("rb") as lines:
                    return decode(FirstAnswer, lines.readline()).is_first
        time.sleep(_RETRY_SECONDS)
