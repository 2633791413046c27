"""The command line and environment of each process of the embedded stack."""

import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from django.conf import settings

from webapp.embedded.broker import BrokerProgram, broker_command
from webapp.embedded.ports import Listener
from webapp.embedded.processes import ChildSpec
from workers.executor.join import celery_command, executor_command

__all__ = ["StackOptions", "StackSpecs", "mlflow_variables"]

#: Not for children: they have no use for it.
_KEPT_BACK = frozenset(
    {"TIDEPOOL_ADMIN_PASSWORD", "TIDEPOOL_ADMIN_PASSWORD_FILE", "TIDEPOOL_RUN", "TIDEPOOL_INTERFACE"}
)
#: Not for executors either.
_OF_CONTROL_PLANE = frozenset(
    {"TIDEPOOL_DATABASE_URL", "TIDEPOOL_DATABASE_URL_FILE", "TIDEPOOL_MAIL_URL", "TIDEPOOL_MAIL_URL_FILE"}
)


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


@dataclass(frozen=True)
class StackSpecs:
    """Builds the children's specs. All run in the checkout, with this process's environment and what is said here."""

    checkout: Path
    home: Path
    #: Address of the site, for links in alerts; the environment may name another.
    site: str
    #: Holds the embedded broker's address and password; None: the environment names another one.
    broker_file: Path | None
    #: Addresses of MLflow for the parts of the control plane, by variable; {}: MLflow is not installed.
    mlflow: Mapping[str, str] = field(default_factory=dict)

    def broker(self, program: BrokerProgram, socket: Path, password: str) -> ChildSpec:
        command = broker_command(program, socket, self.home / "broker", password)
        # SIGTERM lets it remove its socket.
        return self._spec("broker", command, death_signal=signal.SIGTERM)

    def web(self, options: StackOptions, certificate: Path | None) -> ChildSpec:
        """`certificate` holds key and certificate of the ports with TLS, if there are any."""
        ports = [str(port) for port in (Listener(is_tls=False, port=options.port), *options.wmla_ports)]
        tls = [] if certificate is None else ["--certificate", str(certificate)]
        return self._spec("web", [sys.executable, "-m", "webapp.embedded.serve", options.address, *ports, *tls])

    def control(self) -> ChildSpec:
        queue = ["-Q", "control", "-P", "solo", "-n", "control@tidepool"]
        spec = self._spec("control", celery_command("webapp.celery", *queue))
        # `up` has made Django's checks, as `command` says; Celery would throw away what it finds.
        return replace(spec, environment={**spec.environment, "CELERY_SKIP_CHECKS": "1"})

    def command(self, name: str, *arguments: str) -> ChildSpec:
        """A command of manage.py. `up` is one, too, and has made Django's checks already: each loads all pages."""
        return self._spec(name, [sys.executable, "manage.py", *arguments, "--skip-checks"])

    def executor(self, host: str, slots: int, lifeline: int) -> ChildSpec:
        """Has no database: whoever runs a rank on it finds none either."""
        spec = self._spec(host, executor_command(host), descriptors=(lifeline,))
        kept_back = {*_OF_CONTROL_PLANE, *self.mlflow}
        environment = {
            **{name: value for name, value in spec.environment.items() if name not in kept_back},
            "TIDEPOOL_HOST_NAME": host,
            "TIDEPOOL_VIRTUAL_SLOTS": str(slots),
            "TIDEPOOL_ADDRESS": "127.0.0.1",
            "TIDEPOOL_LIFELINE_FD": str(lifeline),
        }
        return replace(spec, environment=environment)

    def _spec(self, name: str, command: list[str], **further: Any) -> ChildSpec:
        broker = {} if self.broker_file is None else {"TIDEPOOL_BROKER_URL_FILE": str(self.broker_file)}
        environment = {
            "TIDEPOOL_SITE_URL": self.site,
            **{name: value for name, value in os.environ.items() if name not in _KEPT_BACK},
            **broker,
            **self.mlflow,
            "TIDEPOOL_HOME": str(self.home),
            "PYTHONUNBUFFERED": "1",
            "SPT_NOENV": "1",  # Celery sets processes' titles: not in the memory of their environment
        }
        return ChildSpec(name, command, environment, self.checkout, **further)


def mlflow_variables(home: Path, site: str) -> dict[str, str]:
    """Variables that say where MLflow's server listens; {}: it is not installed, or runs elsewhere."""
    if settings.TIDEPOOL_MLFLOW_SOCKET or not (settings.TIDEPOOL_MLFLOW_PYTHON.parents[1] / "installed").exists():
        return {}
    return {
        "TIDEPOOL_MLFLOW_SOCKET": str(home / "run" / "mlflow" / "server.sock"),
        "TIDEPOOL_MLFLOW_URL": f"{site}/mlflow",
    }
