"""A PostgreSQL of a test's own, which can be restarted and crashed while others use the machine's."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from tests.journey.running_stack import free_port
from tests.waiting import PATIENCE_SECONDS, wait_until

__all__ = ["OwnPostgreSQL", "find_postgresql", "own_postgresql"]

#: User that owns the server's files where tests run as root, as whom PostgreSQL refuses to run.
_USER = "postgres"


def find_postgresql() -> Path | None:
    """Return the folder of the newest server's programs; None: there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda file: int(file.parts[4]))
    if found:
        return found[-1].parent
    on_path = shutil.which("postgres")
    return Path(on_path).resolve().parent if on_path else None


@dataclass
class OwnPostgreSQL:
    programs: Path
    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """TIDEPOOL_DATABASE_URL."""
        return f"postgres://tidepool@127.0.0.1:{self.port}/postgres"

    def make(self) -> None:
        self.folder.chmod(0o700)
        if os.geteuid() == 0:
            shutil.chown(self.folder, _USER)
        self._run("initdb", "--auth=trust", "--username=tidepool", "--no-sync", f"--pgdata={self.folder}/data")

    def start(self) -> None:
        options = {"port": self.port, "listen_addresses": "127.0.0.1", "unix_socket_directories": self.folder}
        words = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.programs / "postgres", "-D", self.folder / "data", *words],
                stdout=log, stderr=log, cwd=self.folder, start_new_session=True, **_as_owner(),
            )  # fmt: skip
        wait_until(self._answers, lambda: f"PostgreSQL answers\n{(self.folder / 'log').read_text()}")

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """End the server. SIGINT ends its connections; with SIGQUIT it crashes, and recovers at its next start."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(PATIENCE_SECONDS)
            self.process = None

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "log").read_text()
        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _run(self, program: str, *arguments: str) -> None:
        command = [self.programs / program, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.folder, timeout=120, **_as_owner())
        assert done.returncode == 0, done.stderr


def _as_owner() -> dict[str, str]:
    return {"user": _USER, "group": _USER} if os.geteuid() == 0 else {}


@contextmanager
def own_postgresql(programs: Path) -> Iterator[OwnPostgreSQL]:
    """Yield a running server that ends with the block."""
    folder = Path(tempfile.mkdtemp(prefix="tidepool-postgresql-"))
    server = OwnPostgreSQL(programs, folder, free_port())
    try:
        server.make()
        server.start()
        yield server
    finally:
        server.stop(signal.SIGQUIT)
        shutil.rmtree(folder)
