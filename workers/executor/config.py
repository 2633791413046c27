"""Configuration of an executor, from its environment. Only `join`, which makes one, reads that, too."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidepool.rank_process import inherited_environment

from workers.executor.broker_url import verified

__all__ = ["ConfigError", "ExecutorConfig", "executor_config"]

#: Each process on a GPU takes a few hundred megabytes of its memory before it has trained anything.
_MOST_SLOTS_PER_GPU = 16


#: Proxies and certificates of a machine.
_INSTALLER = frozenset(
    {
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO"),
    }
)


class ConfigError(ValueError):
    """A variable is missing or senseless; the text names it."""


@dataclass(frozen=True)
class ExecutorConfig:
    home: Path
    host: str
    broker_url: str
    #: Slots without a GPU behind them, or None on a host with real ones.
    virtual_slots: int | None
    #: Where other hosts reach this one; "": not said. See `workers.executor.machine`.
    address: str
    #: Reading end of a pipe whose closing ends everything here, or None.
    lifeline_fd: int | None
    #: Slots that a real GPU is offered as.
    slots_per_gpu: int = 1
    #: Touched by each report that reached the broker, for health checks.
    alive_file: Path | None = None
    #: The interface that has the address; "": whichever does.
    interface: str = ""
    #: On this machine's own disk; None: in the home.
    run: Path | None = None
    #: Of uv, which installs what trainings require: uv's own variables, and those of proxies and certificates.
    installer_environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def environments_folder(self) -> Path:
        """Folder of installed requirements, shared by all executors of this machine and home."""
        return (self.run or self.home / "run") / ".environments"

    @property
    def run_folder(self) -> Path:
        """Sockets and records of this host's processes."""
        return (self.run or self.home / "run") / self.host

    @property
    def mark(self) -> str:
        """Names this installation's processes on this host, whatever else runs on the machine."""
        return f"{hashlib.sha256(os.fsencode(self.home)).hexdigest()[:12]}.{self.host}"


def executor_config(environment: Mapping[str, str] = os.environ) -> ExecutorConfig:
    virtual_slots = environment.get("TIDEPOOL_VIRTUAL_SLOTS") or None
    lifeline_fd = environment.get("TIDEPOOL_LIFELINE_FD")
    alive_file = environment.get("TIDEPOOL_ALIVE_FILE")
    run = environment.get("TIDEPOOL_RUN")
    return ExecutorConfig(
        home=Path(_required(environment, "TIDEPOOL_HOME")).resolve(),
        host=_required(environment, "TIDEPOOL_HOST_NAME"),
        broker_url=verified(_broker_url(environment), _broker_ca_file(environment)),
        virtual_slots=None if virtual_slots is None else _number("TIDEPOOL_VIRTUAL_SLOTS", virtual_slots),
        address=environment.get("TIDEPOOL_ADDRESS", "").strip(),
        lifeline_fd=None if lifeline_fd is None else _number("TIDEPOOL_LIFELINE_FD", lifeline_fd),
        slots_per_gpu=_slots_per_gpu(environment.get("TIDEPOOL_SLOTS_PER_GPU", "1")),
        alive_file=Path(alive_file) if alive_file else None,
        interface=environment.get("TIDEPOOL_INTERFACE", "").strip(),
        run=Path(run).resolve() if run else None,
        installer_environment=_installer_environment(environment),
    )


def _installer_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without our secrets: what is installed may run code of its own."""
    given = {name: value for name, value in environment.items() if name.startswith("UV_") or name in _INSTALLER}
    return inherited_environment(dict(environment)) | given


def _broker_url(environment: Mapping[str, str]) -> str:
    """It holds a password: from a file it stands in no environment."""
    file = environment.get("TIDEPOOL_BROKER_URL_FILE")
    if not file:
        return _required(environment, "TIDEPOOL_BROKER_URL")
    try:
        url = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise ConfigError(f"TIDEPOOL_BROKER_URL_FILE cannot be read ({error}): let this user read it") from None
    if not url:
        raise ConfigError(f"TIDEPOOL_BROKER_URL_FILE names {file}, which is empty: write the broker's URL into it")
    return url


def _broker_ca_file(environment: Mapping[str, str]) -> Path | None:
    file = environment.get("TIDEPOOL_BROKER_CA_FILE")
    if not file:
        return None
    if not os.access(file, os.R_OK):
        raise ConfigError(f"TIDEPOOL_BROKER_CA_FILE names {file}, which cannot be read: let this user read it")
    return Path(file).resolve()


def _slots_per_gpu(text: str) -> int:
    number = _number("TIDEPOOL_SLOTS_PER_GPU", text)
    if not 1 <= number <= _MOST_SLOTS_PER_GPU:
        raise ConfigError(f"TIDEPOOL_SLOTS_PER_GPU must be from 1 to {_MOST_SLOTS_PER_GPU}, not {number}")
    return number


def _required(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name)
    if not value:
        raise ConfigError(f"set {name} for this executor")
    return value


def _number(name: str, text: str) -> int:
    if not text.isdigit():
        raise ConfigError(f"{name} must be a whole number, not {text!r}")
    return int(text)
