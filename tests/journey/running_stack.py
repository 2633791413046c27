"""`manage.py up` as a real process in a home of its own, and what the operating system says about it."""

import hashlib
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil

from tests.isolation import isolation
from tests.tracking.clients import CACHE
from tests.waiting import PATIENCE_SECONDS, wait_until

__all__ = ["ROOT", "RunningStack", "free_port", "manage"]

ROOT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def environment(home: Path, settings: dict[str, str] | None = None) -> dict[str, str]:
    """Environment of a newcomer: nothing of Tidepool's but the home, and what a test sets.

    Trainings are not walled off, unless a test asks for it: not every journey was seen with walls.
    """
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("TIDEPOOL_", "DJANGO_", "PYTEST_"))
    }
    return kept | {"TIDEPOOL_HOME": str(home), "TIDEPOOL_ISOLATION": "shared"} | (settings or {})


def manage(home: Path, *arguments: str, seconds: float = 300.0) -> subprocess.CompletedProcess[str]:
    """Run a command of manage.py to its end."""
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


@dataclass
class RunningStack:
    home: Path
    port: int
    arguments: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    #: Whether trainings are behind walls, as by default.
    is_walled: bool = False

    @property
    def signals(self) -> Path:
        """Folder in which trainings see files that tests make."""
        return self.home / "signals"

    def start(self) -> None:
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.signals.mkdir(exist_ok=True)
        readable = {"TIDEPOOL_TRAINING_READS": os.pathsep.join(map(str, (self.signals, CACHE)))}
        readable |= {"TIDEPOOL_ISOLATION": "walled"} | isolation() if self.is_walled else {}
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "up", "--port", str(self.port), *self.arguments],
            cwd=ROOT,
            env=environment(self.home, readable | self.settings),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # A terminal sends Ctrl-C to the group of what it started.
            process_group=0,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        try:
            self.wait_for_line(f"Tidepool is ready at {self.url}", PATIENCE_SECONDS)
        except AssertionError:  # no fixture has it yet that would stop it
            self.process.kill()
            raise

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.said.append(line.rstrip("\n"))
                self._lines.put(line.rstrip("\n"))

    def wait_for_line(self, beginning: str, seconds: float) -> str:
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self._lines.get(timeout=max(0.01, min(1.0, deadline - time.monotonic())))
            except queue.Empty:
                assert self.process.poll() is None, f"`up` ended:\n{self.everything_said()}"
                assert time.monotonic() < deadline, f"`up` did not say {beginning!r}:\n{self.everything_said()}"
                continue
            if line.startswith(beginning):
                return line

    def everything_said(self) -> str:
        logs = [f"--- {log.name}\n{log.read_text()[-3000:]}" for log in sorted((self.home / "logs").glob("*.log"))]
        return "\n".join([*self.said, *logs])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def password(self) -> str:
        return (self.home / "admin-password").read_text().strip()

    def api(self) -> httpx.Client:
        """Client of the admin, who sees everybody's jobs."""
        admin = ("admin", self.password)
        return httpx.Client(base_url=f"{self.url}/api/v1/", auth=admin, timeout=PATIENCE_SECONDS, trust_env=False)

    def signal(self, number: signal.Signals) -> None:
        if number is signal.SIGINT:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)

    def stop(self) -> None:
        """End it whatever state it is in; fails if that leaves anything behind."""
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        try:
            self.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    # --- the operating system's view ---

    def family(self) -> list[psutil.Process]:
        """`up` and everything below it, while it lives."""
        up = psutil.Process(self.process.pid)
        return [up, *up.children(recursive=True)]

    def strays(self) -> list[psutil.Process]:
        """Everything that lives and belongs to this home: by its environment, arguments, mark, or working folder."""
        found = []
        mark = hashlib.sha256(os.fsencode(self.home.resolve())).hexdigest()[:12]
        for process in psutil.process_iter():
            try:
                environment = process.environ()
                named = environment.get("TIDEPOOL_HOME") == str(self.home)
                marked = environment.get("TIDEPOOL_MARK", "").startswith(f"{mark}.")
                told = any(str(self.home) in argument for argument in process.cmdline())
                inside = Path(process.cwd()).is_relative_to(self.home)
                if (named or marked or told or inside) and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def sockets(self) -> list[Path]:
        return [path for path in (self.home / "run").rglob("*") if path.is_socket()]

    def is_serving(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def assert_nothing_is_left(self) -> None:
        wait_until(lambda: not self.strays(), f"no process is left of {self.home}")
        assert not self.is_serving()
