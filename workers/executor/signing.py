"""Signed envelopes of this host's reports, and of the desired states that it accepts."""

import itertools
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidepool.journal import replace_file
from tidepool.protocol import Envelope, ProtocolError, Report, Sync, from_json, is_genuine, seal, to_json
from tidepool.seen_numbers import SeenNumbers

__all__ = ["Signer", "next_start"]

logger = logging.getLogger(__name__)


def next_start(file: Path, clock: Callable[[], float] = time.time) -> int:
    """Return the number of this start, above that of every earlier one, and store it.

    A number is also the time, so that a host that has lost its file goes on.
    """
    try:
        before = int(file.read_text())
    except (FileNotFoundError, ValueError):
        before = 0
    number = max(before + 1, int(clock()))
    replace_file(file, f"{number}\n")
    return number


class Signer:
    """Signs reports and checks desired states. A host without a key (of the site's release before) does neither."""

    def __init__(self, host: str, key: str, boot: int) -> None:
        """boot: number of this start of the executor."""
        self._host, self._key, self._boot = host, key, boot
        self._numbers = itertools.count(1)
        self._seen = SeenNumbers()
        #: Number of desired states that were refused.
        self.refused = 0

    def sealed(self, report: Report) -> dict[str, Any]:
        """Return the message of a report, as plain JSON."""
        if not self._key:
            return to_json(report)
        number = next(self._numbers)
        return to_json(seal(self._key, "report", report, host=self._host, boot=self._boot, number=number))

    def opened(self, values: dict[str, Any]) -> Sync:
        """Return the desired state in a message. Raises ProtocolError if the control plane has not sent it to this
        start of this host, or it came before."""
        try:
            return self._opened(values) if self._key else from_json(Sync, values)
        except ProtocolError:
            self.refused += 1
            raise

    def _opened(self, values: dict[str, Any]) -> Sync:
        envelope = from_json(Envelope, values)
        if envelope.host != self._host or not is_genuine(self._key, "sync", envelope):
            raise ProtocolError("it is not signed with the key of this host")
        if envelope.boot not in (0, self._boot):  # 0: the control plane has heard of no start yet
            raise ProtocolError("it is for an earlier start of this executor")
        if not self._seen.is_new(envelope.number):
            raise ProtocolError("it came before")
        try:
            body = json.loads(envelope.body)
        except ValueError as error:
            raise ProtocolError(f"Sync: {error}") from None
        return from_json(Sync, body)
