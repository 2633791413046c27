"""Notices that a machine will be gone, from each source; clouds are stood in for by a local server."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.workers.executor.test_config import COMPLETE
from workers.executor.config import ConfigError, executor_config
from workers.executor.notice import Notice, NoticeOptions, NoticeWatch, moment_in

NOW = 1_790_000_000.0


def watch(options: NoticeOptions, clock: Any = lambda: NOW) -> NoticeWatch:
    found = NoticeWatch(options, lambda: None, clock)
    found.look()
    return found


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("+30", 30.0),
        (f"{NOW + 12}", 12.0),
        ("2026-09-21T14:13:30Z", 10.0),
        ("2026-09-21T16:13:30+02:00", 10.0),
        ("2026-09-21T14:13:30", 10.0),
        (f"{NOW - 500}\n", -500.0),
    ],
)
def test_a_moment_is_read(text: str, seconds: float) -> None:
    found = moment_in(text, NOW)
    assert found is not None
    assert found - NOW == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "soon", "nan", "inf", "+1e300", "17", "2026-13-45"])
def test_other_texts_say_no_moment(text: str) -> None:
    assert moment_in(text, NOW) is None


def test_a_file_says_the_moment_and_is_taken_away_again(tmp_path: Path) -> None:
    file = tmp_path / "notice"
    found = watch(NoticeOptions(file=file))
    assert found.current() is None
    file.write_text(f"{NOW + 60}")
    found.look()
    assert found.current() == Notice(NOW + 60, "notice file")
    file.unlink()
    found.look()
    assert found.current() is None


def test_a_file_without_a_moment_gives_the_usual_time_from_when_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "notice"
    file.write_text("tomorrow, maybe")
    found = watch(NoticeOptions(file=file, usual_seconds=45.0)).current()
    assert found == Notice(file.stat().st_mtime + 45, "notice file, which says 'tomorrow, maybe' and no time")


def test_a_command_says_it(tmp_path: Path) -> None:
    assert watch(NoticeOptions(command=("echo", "+20"))).current() == Notice(NOW + 20, "notice command")
    assert watch(NoticeOptions(command=("true",))).current() is None


def test_a_moment_counts_from_when_it_was_first_said() -> None:
    times = iter([NOW, NOW + 8, NOW + 9])
    found = watch(NoticeOptions(command=("echo", "+20")), lambda: next(times))
    found.look()
    assert found.current() == Notice(NOW + 20, "notice command")


@pytest.mark.parametrize("command", [("false",), ("/no/such/program",)])
def test_a_command_that_fails_is_logged_once(command: tuple[str, ...], caplog: pytest.LogCaptureFixture) -> None:
    found = watch(NoticeOptions(command=command))
    found.look()
    assert found.current() is None
    assert len([line for line in caplog.messages if "the notice command cannot be asked" in line]) == 1


def test_a_signal_gives_the_usual_time() -> None:
    found = watch(NoticeOptions())
    found.signal()
    found.look()
    assert found.current() == Notice(NOW + 30, "signal")


def test_the_earliest_moment_counts(tmp_path: Path) -> None:
    found = watch(NoticeOptions(leaving_at=NOW + 9000, command=("echo", "+20")))
    assert found.current() == Notice(NOW + 20, "notice command")


class Metadata(ThreadingHTTPServer):
    """The metadata service of a cloud: what it answers at each path, and to whom."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.answers: dict[str, str] = {}
        #: A header that requests must have.
        self.asks_for = ("", "")
        self.is_broken = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Answer(BaseHTTPRequestHandler):
    server: Metadata

    def do_GET(self) -> None:
        name, value = self.server.asks_for
        path = self.path.split("?")[0]
        is_allowed = self.headers.get(name) == value or not name
        code = 500 if self.server.is_broken else 401 if not is_allowed else 200 if path in self.server.answers else 404
        self.send_response(code)
        self.end_headers()
        if code == 200:
            self.wfile.write(self.server.answers[path].encode())

    def do_PUT(self) -> None:
        has_limit = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
        self.send_response(200 if self.path == "/latest/api/token" and has_limit else 400)
        self.end_headers()
        self.wfile.write(b"secret")

    def log_message(self, *values: Any) -> None:
        """Print nothing."""


@pytest.fixture
def metadata() -> Iterator[Metadata]:
    with Metadata() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_aws_says_when_it_takes_the_machine(metadata: Metadata) -> None:
    metadata.asks_for = ("X-aws-ec2-metadata-token", "secret")
    found = watch(NoticeOptions(cloud="aws", metadata_url=metadata.url))
    assert found.current() is None
    action = {"action": "terminate", "time": "2026-09-21T14:15:20Z"}
    metadata.answers["/latest/meta-data/spot/instance-action"] = json.dumps(action)
    found.look()
    assert found.current() == Notice(NOW + 120, "AWS")


def test_a_service_that_fails_meanwhile_withdraws_nothing(metadata: Metadata) -> None:
    metadata.answers["/computeMetadata/v1/instance/preempted"] = "TRUE"
    found = watch(NoticeOptions(cloud="gce", metadata_url=metadata.url))
    metadata.is_broken = True
    found.look()
    assert found.current() == Notice(NOW + 30, "Google Cloud")


def test_google_gives_half_a_minute(metadata: Metadata) -> None:
    metadata.asks_for = ("Metadata-Flavor", "Google")
    metadata.answers["/computeMetadata/v1/instance/preempted"] = "FALSE"
    found = watch(NoticeOptions(cloud="gce", metadata_url=metadata.url))
    assert found.current() is None
    metadata.answers["/computeMetadata/v1/instance/preempted"] = "TRUE"
    found.look()
    assert found.current() == Notice(NOW + 30, "Google Cloud")


def event(machine: str, kind: str = "Preempt", at: str = "Mon, 21 Sep 2026 14:13:50 GMT") -> dict[str, Any]:
    return {"EventId": "x", "EventType": kind, "Resources": [machine], "EventStatus": "Scheduled", "NotBefore": at}


@pytest.mark.parametrize(
    ("events", "seconds"),
    [
        ([], None),
        ([event("other")], None),
        ([event("gpu-1", "Freeze")], None),
        ([event("other"), event("gpu-1")], 30),
    ],
)
def test_azure_names_the_machines_that_go(metadata: Metadata, events: list[Any], seconds: int | None) -> None:
    metadata.asks_for = ("Metadata", "true")
    metadata.answers["/metadata/scheduledevents"] = json.dumps({"Events": events})
    metadata.answers["/metadata/instance/compute/name"] = "gpu-1"
    found = watch(NoticeOptions(cloud="azure", metadata_url=metadata.url)).current()
    assert found == (None if seconds is None else Notice(NOW + seconds, "Azure"))


@pytest.mark.parametrize("answer", ["", "[]", "{}", '{"time": 5}', '{"time": "soon"}', "not JSON"])
def test_answers_that_make_no_sense_end_nothing(metadata: Metadata, answer: str) -> None:
    metadata.answers["/latest/meta-data/spot/instance-action"] = answer
    found = watch(NoticeOptions(cloud="aws", metadata_url=metadata.url)).current()
    # A time that cannot be read is a notice all the same.
    assert found is None or found.leaving_at == NOW + 30


def test_settings_of_notices() -> None:
    given = {
        "TIDEPOOL_NOTICE": "AWS", "TIDEPOOL_NOTICE_FILE": "/run/notice", "TIDEPOOL_NOTICE_COMMAND": "ask --at 'x y'",
        "TIDEPOOL_NOTICE_SECONDS": "60", "TIDEPOOL_FLEET": "spot",
    }  # fmt: skip
    config = executor_config({**COMPLETE, **given})
    assert config.fleet == "spot"
    assert config.notice == NoticeOptions(Path("/run/notice"), ("ask", "--at", "x y"), "aws", "", None, 60.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TIDEPOOL_NOTICE", "ibm"),
        ("TIDEPOOL_NOTICE_COMMAND", "ask 'x"),
        ("TIDEPOOL_NOTICE_SECONDS", "soon"),
        ("TIDEPOOL_LEAVING_AT", "tomorrow"),
        ("TIDEPOOL_METADATA_URL", "file:///etc/passwd"),
        ("TIDEPOOL_FLEET", "../x"),
    ],
)
def test_mistakes_in_settings_of_notices_are_named(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        executor_config({**COMPLETE, name: value})
