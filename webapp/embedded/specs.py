"""The command line and environment of each process of the embedded stack."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from webapp.embedded.broker import BrokerProgram, broker_command
from webapp.embedded.ports import Listener
from webapp.embedded.processes import ChildSpec

__all__ = ["StackOptions", "StackSpecs", "host_names"]

#: Not for children: they have no use for it.
_KEPT_BACK = frozenset({"TIDEPOOL_ADMIN_PASSWORD", "TIDEPOOL_ADMIN_PASSWORD_FILE"})
_DATABASE = ("TIDEPOOL_DATABASE_URL", "TIDEPOOL_DATABASE_URL_FILE")


@dataclass(frozen=True)
class StackOptions:
    address: str
    port: int
    hosts: int
    slots_per_host: int
    #: "auto", "system" or "wheel"
    broker: str
    demo: bool
    #: A new home gets no dataset, no model and no groups for GPUs.
    no_examples: bool = False
    #: Further ones, with TLS or without.
    wmla_ports: tuple[Listener, ...] = ()


def host_names(count: int) -> list[str]:
    return [f"gpu-host-{number}" for number in range(1, count + 1)]


@dataclass(frozen=True)
class StackSpecs:
    """Builds the children's specs. All run in the checkout, with this process's environment and what is said here."""

    checkout: Path
    home: Path
    #: Of the embedded broker; None: the environment names another one.
    broker_url: str | None

    def broker(self, program: BrokerProgram, socket: Path) -> ChildSpec:
        command = broker_command(program, socket, self.home / "broker")
        # SIGTERM lets it remove its socket.
        return ChildSpec("broker", command, self._environment(), self.checkout, death_signal=signal.SIGTERM)

    def web(self, options: StackOptions, certificate: Path | None) -> ChildSpec:
        """`certificate` holds key and certificate of the ports with TLS, if there are any."""
        ports = [str(port) for port in (Listener(is_tls=False, port=options.port), *options.wmla_ports)]
        tls = [] if certificate is None else ["--certificate", str(certificate)]
        return self._python("web", "webapp.embedded.serve", options.address, *ports, *tls)

    def scheduler(self) -> ChildSpec:
        command = [sys.executable, "manage.py", "run_scheduler"]
        return ChildSpec("scheduler", command, self._environment(), self.checkout)

    def control(self) -> ChildSpec:
        queue = ["-Q", "control", "-P", "solo", "-n", "control@tidepool"]
        return self._python("control", "celery", "-A", "webapp.celery", "worker", *queue, *_CELERY)

    def checker(self) -> ChildSpec:
        command = [sys.executable, "manage.py", "check_datasets"]
        return ChildSpec("checker", command, self._environment(), self.checkout)

    def executor(self, host: str, slots: int, lifeline: int) -> ChildSpec:
        """Has no database: whoever runs a rank on it finds none either."""
        environment = self._environment()
        for name in _DATABASE:
            environment.pop(name, None)
        environment |= {
            "TIDEPOOL_HOST_NAME": host,
            "TIDEPOOL_VIRTUAL_SLOTS": str(slots),
            "TIDEPOOL_ADDRESS": "127.0.0.1",
            "TIDEPOOL_LIFELINE_FD": str(lifeline),
        }
        queue = ["-P", "threads", "-c", "2", "-Q", f"host.{host}", "-n", f"{host}@tidepool"]
        command = [sys.executable, "-m", "celery", "-A", "workers.executor.app", "worker", *queue, *_CELERY]
        return ChildSpec(host, command, environment, self.checkout, descriptors=(lifeline,))

    def tutorial_command(self, url: str) -> list[str]:
        return [sys.executable, "manage.py", "tutorial", "--url", url]

    def environment(self) -> dict[str, str]:
        return self._environment()

    def _python(self, name: str, *arguments: str) -> ChildSpec:
        return ChildSpec(name, [sys.executable, "-m", *arguments], self._environment(), self.checkout)

    def _environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if name not in _KEPT_BACK}
        broker = {} if self.broker_url is None else {"TIDEPOOL_BROKER_URL": self.broker_url}
        return (
            inherited
            | broker
            | {
                "TIDEPOOL_HOME": str(self.home),
                "PYTHONUNBUFFERED": "1",
                "SPT_NOENV": "1",  # Celery sets processes' titles: not in the memory of their environment
            }
        )


_CELERY = ("--loglevel", "INFO", "--without-gossip", "--without-mingle", "--without-heartbeat")
