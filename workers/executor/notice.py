"""Notices that this machine will be gone: from a file, a command, a signal, a setting, or a cloud's metadata.

The earliest moment of all sources counts. A source that fails is named once in the log; what it said before counts on.
"""

import json
import logging
import os
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from pathlib import Path
from typing import Any, Literal

__all__ = ["Cloud", "Notice", "NoticeOptions", "NoticeWatch", "moment_in"]

logger = logging.getLogger(__name__)

Cloud = Literal["aws", "gce", "azure"]
#: Addresses of the clouds' metadata services, which answer on the machine alone.
_METADATA: Mapping[Cloud, str] = {
    "aws": "http://169.254.169.254",
    "gce": "http://metadata.google.internal",
    "azure": "http://169.254.169.254",
}
_ANSWER_SECONDS = 2.0
_COMMAND_SECONDS = 10.0
_EVERY_SECONDS = 2.0
#: Seconds that Google gives a machine after it says that it is preempted.
_GCE_SECONDS = 30.0
#: Events of Azure that end or stop the machine.
_AZURE_EVENTS = frozenset({"Preempt", "Terminate", "Redeploy"})
_MOST_BYTES = 1_000_000
_FILE = "notice file"
_LONGEST_TEXT = 100
#: A moment further away is a mistake.
_FAR_SECONDS = 400 * 86400.0


@dataclass(frozen=True)
class Notice:
    #: Unix seconds by this machine's clock.
    leaving_at: float
    #: Source, in a few words.
    why: str


@dataclass(frozen=True)
class NoticeOptions:
    """Sources that are set."""

    #: File that says the moment, or is there.
    file: Path | None = None
    #: Command that prints the moment, or nothing.
    command: Sequence[str] = ()
    cloud: Cloud | None = None
    #: Address of the metadata service instead of the cloud's own.
    metadata_url: str = ""
    #: Moment that was known at the start.
    leaving_at: float | None = None
    #: Seconds until the machine is gone, where a notice does not say when.
    usual_seconds: float = 30.0


class NoticeWatch:
    """Thread that asks the sources every two seconds."""

    def __init__(
        self, options: NoticeOptions, changed: Callable[[], None], clock: Callable[[], float] = time.time
    ) -> None:
        """changed: called when the notice changes. clock: this machine's Unix seconds."""
        self._options, self._changed, self._clock = options, changed, clock
        self._signalled: Notice | None = None
        self._notice: Notice | None = None
        #: Source -> the first time at which it said that the machine goes, without saying when.
        self._since: dict[str, float] = {}
        #: Source -> its newest notice.
        self._told: dict[str, Notice | None] = {}
        #: Source -> its problem, which the log has.
        self._problems: dict[str, str] = {}
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name="notice", daemon=True)

    def start(self) -> None:
        self.look()
        self._thread.start()

    def leave(self) -> None:
        self._leaving.set()

    def current(self) -> Notice | None:
        """Return the notice that counts; thread-safe."""
        return self._notice

    def signal(self) -> None:
        """Take a signal as a notice: the machine will be gone after the usual seconds."""
        if self._signalled is None:
            self._signalled = Notice(self._clock() + self._options.usual_seconds, "signal")
        self._decide([self._signalled, self._notice])

    def look(self) -> None:
        """Ask all sources."""
        options = self._options
        found = [self._signalled]
        if options.leaving_at is not None:
            found.append(Notice(options.leaving_at, "TIDEPOOL_LEAVING_AT"))
        if options.file is not None:
            found.append(self._ask(_FILE, self._of_file))
        if options.command:
            found.append(self._ask("notice command", self._of_command))
        if options.cloud is not None:
            found.append(self._ask(_CLOUDS[options.cloud][0], self._of_cloud))
        self._decide(found)

    def _run(self) -> None:
        while not self._leaving.wait(_EVERY_SECONDS):
            self.look()

    def _decide(self, found: Sequence[Notice | None]) -> None:
        notice = min((one for one in found if one is not None), key=lambda one: one.leaving_at, default=None)
        if notice != self._notice:
            self._notice = notice
            words = "withdrawn" if notice is None else f"gone at {notice.leaving_at:.0f} ({notice.why})"
            logger.warning("notice: %s", words)
            self._changed()

    def _ask(self, source: str, ask: Callable[[], str | float | None]) -> Notice | None:
        """Return the notice of a source, which answers with a moment, a text about it, or None."""
        try:
            self._told[source] = self._notice_of(source, ask())
            self._problems[source] = ""
        except (OSError, ValueError, LookupError, TypeError, subprocess.SubprocessError) as error:
            problem = f"{type(error).__name__}: {error}"
            if self._problems.get(source) != problem:
                logger.warning("notice: the %s cannot be asked: %s", source, problem)
            self._problems[source] = problem
        return self._told.get(source)

    def _notice_of(self, source: str, said: str | float | None) -> Notice | None:
        if said is None:
            self._since.pop(source, None)
            return None
        if isinstance(said, float):
            return Notice(said, source)
        since = self._since.setdefault(source, self._clock())
        leaving_at = moment_in(said, since)
        if leaving_at is not None:
            return Notice(leaving_at, source)
        shown = said.strip()[:_LONGEST_TEXT]
        why = f"{source}, which says {shown!r} and no time" if shown else source
        return Notice(since + self._options.usual_seconds, why)

    def _of_file(self) -> str | None:
        assert self._options.file is not None
        try:
            with self._options.file.open(encoding="utf-8", errors="replace") as file:
                self._since[_FILE] = os.fstat(file.fileno()).st_mtime
                return file.read(_MOST_BYTES)
        except FileNotFoundError:
            return None

    def _of_command(self) -> str | None:
        done = subprocess.run(
            self._options.command, capture_output=True, text=True, errors="replace", timeout=_COMMAND_SECONDS,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        if done.returncode:
            raise ValueError(f"it ended with code {done.returncode}: {done.stderr.strip()[-_LONGEST_TEXT:]}")
        return done.stdout.strip() or None

    def _of_cloud(self) -> str | float | None:
        cloud = self._options.cloud
        assert cloud is not None
        return _CLOUDS[cloud][1]((self._options.metadata_url or _METADATA[cloud]).rstrip("/"))


def moment_in(text: str, since: float) -> float | None:
    """Return the moment in a text: Unix seconds, an ISO 8601 time, or `+30` seconds from `since`; None: there is none.

    Moments that are more than a year away are mistakes.
    """
    text = text.strip()
    try:
        moment = since + float(text) if text.startswith("+") else float(text)
    except ValueError:
        moment = _iso_moment(text)
    return moment if isfinite(moment) and abs(moment - since) <= _FAR_SECONDS else None


def _iso_moment(text: str) -> float:
    """Return the Unix seconds of an ISO 8601 time, which is in UTC unless it says otherwise; NaN: it is none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return float("nan")
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


# --- clouds -----------------------------------------------------------------------------------------------------------


def _get(url: str, headers: Mapping[str, str], method: str = "GET") -> str | None:
    """Return the answer of a metadata service; None: there is nothing at this address (404)."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, headers=dict(headers), method=method)  # noqa: S310 (the scheme is checked)
    try:
        with opener.open(request, timeout=_ANSWER_SECONDS) as answer:
            text: str = answer.read(_MOST_BYTES).decode()
            return text
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise


def _of_aws(url: str) -> str | None:
    token = _get(f"{url}/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}, "PUT")
    headers = {"X-aws-ec2-metadata-token": token or ""}
    said = _get(f"{url}/latest/meta-data/spot/instance-action", headers)
    if said is None:
        return None
    action: dict[str, Any] = json.loads(said)
    return str(action["time"])


def _of_gce(url: str) -> str | None:
    said = _get(f"{url}/computeMetadata/v1/instance/preempted", {"Metadata-Flavor": "Google"})
    return f"+{_GCE_SECONDS:g}" if (said or "").strip().upper() == "TRUE" else None


def _of_azure(url: str) -> float | None:
    said = _get(f"{url}/metadata/scheduledevents?api-version=2020-07-01", {"Metadata": "true"})
    events: list[dict[str, Any]] = json.loads(said or "{}").get("Events", [])
    if not any(event.get("EventType") in _AZURE_EVENTS for event in events):
        return None
    name = _get(f"{url}/metadata/instance/compute/name?api-version=2021-02-01&format=text", {"Metadata": "true"})
    here = [
        _azure_moment(str(event.get("NotBefore", "")))
        for event in events
        if event.get("EventType") in _AZURE_EVENTS and (name or "").strip() in event.get("Resources", [])
    ]
    return min(here, default=None)


def _azure_moment(text: str) -> float:
    """Return the moment; "": the event has begun, and there is no time left to be told."""
    return parsedate_to_datetime(text).timestamp() if text else time.time()


_CLOUDS: Mapping[Cloud, tuple[str, Callable[[str], str | float | None]]] = {
    "aws": ("AWS", _of_aws),
    "gce": ("Google Cloud", _of_gce),
    "azure": ("Azure", _of_azure),
}
