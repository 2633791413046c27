"""The command line and environment of each process of the embedded stack."""

import os
import signal
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command

from webapp.embedded import serve
from webapp.embedded.broker import BrokerProgram, broker_command
from webapp.embedded.ports import Listener
from webapp.embedded.processes import ChildSpec
from workers.executor.join import KEY_FILE, executor_command

__all__ = ["StackOptions", "StackSpecs", "mlflow_variables", "stack_environment"]

#: Variables that child processes do not need.
_KEPT_BACK = frozenset(
    {
        *("TIDEPOOL_ADMIN_PASSWORD", "TIDEPOOL_ADMIN_PASSWORD_FILE"),
        *("TIDEPOOL_RUN", "TIDEPOOL_INTERFACE", "TIDEPOOL_PORTS"),
    }
)
#: Variables that executors must not have, in addition.
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
    #: Whether a new home gets no dataset, no model and no GPU groups.
    no_examples: bool = False
    #: Additional ports, with or without TLS.
    wmla_ports: tuple[Listener, ...] = ()


@dataclass(frozen=True)
class StackSpecs:
    """Builds the children's specs. All run in the checkout, with this process's environment and the variables given
    here."""

    checkout: Path
    home: Path

    def broker(self, program: BrokerProgram, socket: Path, password: str) -> ChildSpec:
        command = broker_command(program, socket, self.home / "broker", password)
        # On SIGTERM, it removes its socket.
        return self._spec("broker", command, death_signal=signal.SIGTERM)

    def web(self, options: StackOptions, certificate: Path | None) -> ChildSpec:
        """Return the web server's spec. `certificate`: file with key and certificate of the TLS ports, if any."""
        ports = [str(port) for port in (Listener(is_tls=False, port=options.port), *options.wmla_ports)]
        tls = [] if certificate is None else ["--certificate", str(certificate)]
        return self._spec("web", [], work=partial(serve.main, [options.address, *ports, *tls]))

    def part(self, name: str, command: str) -> ChildSpec:
        """Return the spec of a manage.py command that a fork of this process runs."""
        return self._spec(name, [], work=partial(call_command, command, skip_checks=True))

    def command(self, name: str, *arguments: str) -> ChildSpec:
        """Return the spec of a manage.py command, without Django's checks, which load all pages: `up` has already run
        them."""
        return self._spec(name, [sys.executable, "manage.py", *arguments, "--skip-checks"])

    def executor(self, host: str, slots: int, lifeline: int) -> ChildSpec:
        """Return an executor's spec, without access to the database, so that ranks have none either."""
        spec = self._spec(host, executor_command(host), descriptors=(lifeline,))
        kept_back = {*_OF_CONTROL_PLANE, *mlflow_variables(self.home)}
        environment = {
            **{name: value for name, value in spec.environment.items() if name not in kept_back},
            "TIDEPOOL_HOST_NAME": host,
            "TIDEPOOL_VIRTUAL_SLOTS": str(slots),
            "TIDEPOOL_ADDRESS": "127.0.0.1",
            "TIDEPOOL_LIFELINE_FD": str(lifeline),
            **_closed_ports(),
            "TIDEPOOL_HOST_KEY_FILE": str(self.home / "run" / host / KEY_FILE),
        }
        return replace(spec, environment=environment)

    def _spec(self, name: str, command: list[str], **further: Any) -> ChildSpec:
        environment = {
            **{name: value for name, value in os.environ.items() if name not in _KEPT_BACK},
            "TIDEPOOL_HOME": str(self.home),
            "PYTHONUNBUFFERED": "1",
            "SPT_NOENV": "1",  # Celery sets processes' titles: not in the memory of their environment
        }
        return ChildSpec(name, command, environment, self.checkout, **further)


def stack_environment(home: Path, site: str) -> dict[str, str]:
    """Return the environment of `up` once home and broker are prepared: the settings of its parts come from it.

    site: address for links in alerts; the environment may name another.
    """
    broker = {"TIDEPOOL_BROKER_URL_FILE": str(settings.EMBEDDED_BROKER_FILE)} if settings.BROKER_IS_EMBEDDED else {}
    return {"TIDEPOOL_SITE_URL": site, **os.environ, **broker, **mlflow_variables(home, site)}


def _closed_ports() -> dict[str, str]:
    """Return the variable by which executors close the port of the database to trainings."""
    port = settings.DATABASES["default"].get("PORT")
    named = os.environ.get("TIDEPOOL_CLOSED_PORTS", "")
    return {"TIDEPOOL_CLOSED_PORTS": f"{named} {port}"} if port else {}


def mlflow_variables(home: Path, site: str = "") -> dict[str, str]:
    """Return the variables with MLflow's socket; {}: it is not installed, or runs elsewhere."""
    socket = str(home / "run" / "mlflow" / "server.sock")
    is_installed = (settings.TIDEPOOL_MLFLOW_PYTHON.parents[1] / "installed").exists()
    if not is_installed or settings.TIDEPOOL_MLFLOW_SOCKET not in ("", socket):
        return {}
    return {"TIDEPOOL_MLFLOW_SOCKET": socket, "TIDEPOOL_MLFLOW_URL": f"{site}/mlflow"}
