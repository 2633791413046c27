"""Tests of `top`: keys give commands, of what is seen alone; and it draws in a real terminal."""

import io
import os
import pty
import select
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from rich.console import Console
from tidepool.cli.top import Overview, Screen, after_key, bar, keys_of, view
from tidepool.client.decoding import decoded
from tidepool.client.rows import JobInfo

from tests.test_architecture import ROOT

PATIENCE_SECONDS = 60.0


def _job(number: int, **values: object) -> dict[str, object]:
    return {
        "id": number, "name": f"job-{number}", "owner": "alice", "model": "m", "dataset": "", "instance_group": "g",
        "state": "RUNNING", "reason": {"code": "R", "text": "It trains.", "params": {}}, "min_slots": 1, "max_slots": 4,
        "slots": 2, "target_slots": 2, "priority": 5000, "attempt": 1, "step": 3, "epoch": 0, "progress": 0.5,
        "final_metrics": {}, "error": None, "submitted_at": "2026-01-01T00:00:00Z", "started_at": None,
        "finished_at": None, **values,
    }  # fmt: skip


OVERVIEW = Overview([], [decoded(JobInfo, each) for each in (_job(1), _job(2, state="SUSPENDED"))])


def _typed(*keys: str) -> list[tuple[str, int, int | None]]:
    screen, given = Screen(), []
    for key in keys:
        screen, command = after_key(OVERVIEW, screen, key)
        given += [command] if command else []
    return given


@pytest.mark.parametrize(
    ("keys", "commands"),
    [
        (("c", "y"), [("cancel", 1, None)]),
        (("c", "n"), []),
        (("c", "esc", "y"), []),
        (("down", "c", "y"), [("cancel", 2, None)]),
        (("down", "down", "up", "s"), [("suspend", 1, None)]),
        (("down", "s"), [("resume", 2, None)]),
        (("p", "7", "0", "x", "0", "back", "enter"), [("priority", 1, 70)]),
        (("p", "enter"), []),
        (("p", "7", "esc"), []),
        (("+",), [("scale", 1, 5)]),
        (("-", "-"), [("scale", 1, 3), ("scale", 1, 3)]),
        (("x", "up"), []),
    ],
)
def test_keys_give_commands(keys: tuple[str, ...], commands: list[tuple[str, int, int | None]]) -> None:
    assert _typed(*keys) == commands


def test_a_job_that_is_gone_is_marked_no_more() -> None:
    assert after_key(Overview([], []), Screen(marked=1, asking="cancel"), "y")[1] is None


@pytest.mark.parametrize(
    ("given", "keys"),
    [
        (b"7000\r", ["7", "0", "0", "0", "enter"]),
        (b"\x1b[A\x1bOBq", ["up", "down", "q"]),
        (b"\x1b", ["esc"]),
        ("ü".encode(), ["other", "other"]),
        (b"", []),
    ],
)
def test_keys_of_what_is_typed_fast(given: bytes, keys: list[str]) -> None:
    assert keys_of(given) == keys


def test_shows_numbers_and_states_whole() -> None:
    console = Console(width=120, file=io.StringIO())
    console.print(view(OVERVIEW, Screen(), height=24))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    for words in (" 1 ", "RUNNING", "SUSPENDED", "2/4", "5000", "job-1"):
        assert words in shown


@pytest.mark.parametrize(("progress", "full"), [(None, 0), (0.0, 0), (0.5, 5), (1.0, 10)])
def test_bars(progress: float | None, full: int) -> None:
    assert bar(progress, 10).count("█") == full


class _Site(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        import json

        slots = [{"key": "h:0", "index": 0, "status": "training", "job": 1, "owner": "alice"}]
        is_list = self.path.startswith("/api/v1/jobs/")
        answer = {"results": [_job(1)], "next": None} if is_list else {"hosts": [{"host": "h", "slots": slots}]}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_draws_in_a_terminal_and_ends_at_a_key(tmp_path: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), _Site) as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        environment = {
            **{name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG")},
            "PYTHONPATH": str(ROOT / "runtime"),
            "XDG_CONFIG_HOME": str(tmp_path),
            "TIDEPOOL_URL": f"http://127.0.0.1:{site.server_port}",
            "TIDEPOOL_TOKEN": "t",
            "TERM": "xterm-256color",
            "COLUMNS": "120",
            "LINES": "30",
        }
        child, terminal = pty.fork()
        if child == 0:
            os.execve(sys.executable, [sys.executable, "-m", "tidepool", "top"], environment)
        try:
            seen = _until(terminal, b"job-1")
            os.write(terminal, b"q")
            _, status = os.waitpid(child, 0)
        finally:
            os.close(terminal)
            site.shutdown()
    assert "█".encode() in seen
    assert b"alice" in seen
    assert os.waitstatus_to_exitcode(status) == 0


def _until(terminal: int, wanted: bytes) -> bytes:
    seen, ends = b"", time.monotonic() + PATIENCE_SECONDS
    while wanted not in seen or b"q quit" not in seen:
        assert time.monotonic() < ends, seen
        if select.select([terminal], [], [], 0.2)[0]:
            seen += os.read(terminal, 65536)
    return seen
