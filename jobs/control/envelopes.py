"""Reports in signed envelopes, as they come from hosts that have a key.

A report is refused if it is forged, was taken before, is of an earlier start of its executor, or comes without an
envelope in the name of a host that has a key. A report that another process has taken before is not told apart here:
`jobs.control.hosts` finds it late, and its entries stored.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidepool.protocol import Envelope, ProtocolError, Report, from_json, is_genuine
from tidepool.seen_numbers import SeenNumbers

from core.text import is_readable_json
from jobs.control.intake import ForgedReport, plain_report
from workers.host_keys import host_key
from workers.models import Host

__all__ = ["Envelopes"]

#: Age at which the numbers of hosts' keys are read again.
_KNOWN_SECONDS = 1.0
#: ... and when a signature does not fit: strangers must not have it read for each of their messages.
_JOINED_SECONDS = 0.1


@dataclass
class _Start:
    """The newest start of a host's executor."""

    boot: int
    seen: SeenNumbers = field(default_factory=SeenNumbers)


class Envelopes:
    """Opens envelopes; one for each process that takes reports."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._read_at: float | None = None
        #: Host -> numbers of its key and of the newest start that was heard.
        self._known: Mapping[str, tuple[int, int]] = {}
        self._starts: dict[tuple[str, int], _Start] = {}

    def open(self, values: Any) -> Report:
        """Return the report. Raises ForgedReport, or ProtocolError if it cannot be read."""
        if not (isinstance(values, dict) and "proof" in values):
            report = plain_report(values)
            if self._numbers(report.host)[0]:
                raise ForgedReport(f"an unsigned report in the name of {report.host}, which has a key")
            return report
        envelope = from_json(Envelope, values)
        number, boot = self._numbers(envelope.host)
        if not _is_signed(envelope, number):
            number, boot = self._numbers(envelope.host, _JOINED_SECONDS)  # it may just have joined
        if not _is_signed(envelope, number):
            raise ForgedReport(f"a report that is not signed with the key of {envelope.host}")
        report = _report_in(envelope)
        if report.host != envelope.host:
            raise ForgedReport(f"a report of {envelope.host} in the name of {report.host}")
        self._refuse_repeated(envelope, number, boot)
        return report

    def _refuse_repeated(self, envelope: Envelope, number: int, boot: int) -> None:
        host = envelope.host
        start = self._starts.get((host, number))
        newest = max(boot, 0 if start is None else start.boot)
        if envelope.boot < newest:
            raise ForgedReport(f"a report of an earlier start of {host}")
        if start is None or envelope.boot > start.boot:
            start = self._starts[host, number] = _Start(envelope.boot)
        if not start.seen.is_new(envelope.number):
            raise ForgedReport(f"a report of {host} that was taken before")
        if envelope.boot > boot:
            Host.objects.filter(name=host, key_number=number, key_boot__lt=envelope.boot).update(key_boot=envelope.boot)

    def _numbers(self, host: str, most_seconds: float = _KNOWN_SECONDS) -> tuple[int, int]:
        """Return the numbers of the host's key (0: none) and of its newest start, as they were so long ago at most."""
        now = self._clock()
        if self._read_at is None or now - self._read_at >= most_seconds:
            rows = Host.objects.filter(key_number__gt=0).values_list("name", "key_number", "key_boot")
            self._known, self._read_at = {name: (number, boot) for name, number, boot in rows}, now
        return self._known.get(host, (0, 0))


def _is_signed(envelope: Envelope, number: int) -> bool:
    return number > 0 and is_genuine(host_key(envelope.host, number), "report", envelope)


def _report_in(envelope: Envelope) -> Report:
    try:
        values = json.loads(envelope.body)
        return from_json(Report, values) if is_readable_json(envelope.body) else plain_report(values)
    except ValueError as error:
        raise ProtocolError(f"Report: {error}") from None
