"""Intake of hosts' reports: takes many messages at once, and stores what is newest of them. `manage.py take_reports`.

Any number of processes may take messages. One that is killed loses those that it has taken: hosts repeat facts each
second and entries until they are acknowledged, and the scheduler repeats its requests.
"""

import base64
import binascii
import json
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from tidepool.protocol import JournalEntry, ProtocolError, Report, from_json

from core.text import readable_text

__all__ = ["MESSAGE_BYTES", "Batch", "ForgedReport", "Request", "batch_of", "plain_report"]

logger = logging.getLogger(__name__)

#: Largest message that is read. A report has at most 500 entries, of a few kilobytes each.
MESSAGE_BYTES = 16 * 1024**2
REPORT_TASK = "jobs.tasks.ingest_report"


class ForgedReport(ProtocolError):
    """A report that its host has not sent, or has sent before."""


class _Properties(msgspec.Struct):
    body_encoding: str = ""


class _Headers(msgspec.Struct):
    task: str


class _Message(msgspec.Struct):
    """A message of Celery's in Redis, as far as it matters here."""

    body: str
    headers: _Headers
    properties: _Properties


@dataclass(frozen=True)
class Request:
    """A task that is not a report."""

    task: str
    args: Sequence[Any]


@dataclass(frozen=True)
class Batch:
    #: For each start of an executor, in the order in which they came: its newest facts, and the entries of all of its
    #: reports.
    reports: list[Report] = field(default_factory=list)
    #: Requests that came among the reports, each once for its task; they follow all reports.
    requests: list[Request] = field(default_factory=list)
    #: Why messages were dropped.
    dropped: list[str] = field(default_factory=list)
    #: ... and reports that their hosts have not sent, or had sent before.
    forged: list[str] = field(default_factory=list)


def plain_report(values: Any) -> Report:
    """Return a report without an envelope. Raises ProtocolError."""
    # Errors and names from scripts may hold any character: none must block a host's reports, or command a terminal.
    return from_json(Report, readable_text(values))


def batch_of(messages: Iterable[bytes], open_report: Callable[[Any], Report] = plain_report) -> Batch:
    """Return what is to be stored of these messages, the oldest first.

    open_report: returns the report in a message's argument. Raises ProtocolError, and ForgedReport.
    """
    reports: dict[tuple[str, str], list[Report]] = defaultdict(list)
    requests: dict[str, Request] = {}
    dropped, forged = [], []
    for message in messages:
        try:
            request = _request(message)
            if request.task == REPORT_TASK:
                report = open_report(request.args[0])
                reports[report.host, report.boot].append(report)
            else:
                requests[request.task] = request
        except ForgedReport as error:
            forged.append(str(error)[:200])
        except (ProtocolError, ValueError, LookupError, RecursionError) as error:
            dropped.append(str(error)[:200])
    return Batch([_merged(of_boot) for of_boot in reports.values()], list(requests.values()), dropped, forged)


def _request(message: bytes) -> Request:
    """Return the task of a message. Raises ValueError if it is none."""
    if len(message) > MESSAGE_BYTES:
        raise ValueError(f"a message of {len(message)} bytes is larger than {MESSAGE_BYTES}")
    found = msgspec.json.decode(message, type=_Message)  # msgspec's errors are ValueErrors
    try:
        body = base64.b64decode(found.body) if found.properties.body_encoding == "base64" else found.body.encode()
    except binascii.Error as error:
        raise ValueError(f"the body of a message is not base64: {error}") from error
    try:
        args, *_ = msgspec.json.decode(body, type=tuple[list[Any], Any, Any])
    except ValueError:
        # Texts of scripts may hold half a surrogate pair, and numbers may be NaN: hosts write both with Python's json,
        # which alone reads them again.
        args, *_ = msgspec.convert(json.loads(body), tuple[list[Any], Any, Any])
    return Request(found.headers.task, args)


def _merged(reports: Sequence[Report]) -> Report:
    """Return the newest report of one start of an executor, with the entries of all."""
    newest = max(reports, key=lambda report: report.at)
    if len(reports) == 1:
        return newest
    entries: dict[tuple[str, int], JournalEntry] = {}
    for report in reports:
        for entry in report.entries:
            entries.setdefault((entry.journal, entry.number), entry)
    told = [report for report in reports if report.environments is not None]
    environments = max(told, key=lambda report: report.at).environments if told else None
    return msgspec.structs.replace(newest, entries=list(entries.values()), environments=environments)
