"""Configuration of an executor, from environment variables. Only `join` reads those elsewhere."""

import hashlib
import os
import re
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast, get_args

import tidepool
from tidepool.env import THREAD_VARIABLES
from tidepool.inherited_environment import (
    NCCL_RECOVERIES,
    NCCL_RECOVERY,
    NCCL_STATE,
    NCCL_STATES,
    inherited_environment,
)
from tidepool.units import size_in

from workers.executor.broker_url import IN_BRACKETS, is_readable, verified
from workers.executor.environments.engines import CHOICE, ENGINE_NAMES, ENGINES, engine_in
from workers.executor.limits import LEAST_CORES, LEAST_MEMORY, Amounts
from workers.executor.notice import Cloud, NoticeOptions, moment_in
from workers.executor.users import UserIds, user_ids_in

__all__ = [
    "FLEET_NAME",
    "ConfigError",
    "ExecutorConfig",
    "executor_config",
    "host_mark",
    "self_test_environment",
    "virtual_slots_of",
]

#: Highest number of slots per GPU: each process takes a few hundred MiB of GPU memory before it trains.
_MOST_SLOTS_PER_GPU = 16
#: Pattern of the name of a fleet.
FLEET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


#: Beginnings and names of variables for programs that install or pull what a training requires.
_FAMILIES = ("UV_", "ENROOT_", "APPTAINER_")
_INSTALLER = frozenset(
    {
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO"),
        *("XDG_RUNTIME_DIR", "XDG_DATA_HOME", "CONTAINERS_CONF", "CONTAINERS_REGISTRIES_CONF", "REGISTRY_AUTH_FILE"),
        *(CHOICE, "CONDARC", "CONDA_CHANNEL_ALIAS", "CONDA_SSL_VERIFY", "CONDA_OVERRIDE_CUDA"),
    }
)


#: Further least limits of a slot: processes and threads, and temporary files in bytes.
_FEWEST_PROCESSES, _LEAST_SCRATCH = 8, 64 * 1024**2
#: Level of isolation that the operator chooses; see `workers.executor.walls`.
Isolation = Literal["walled", "separate", "sealed", "shared"]
#: Variables that name a file with a password.
_SECRET_FILES = ("TIDEPOOL_BROKER_URL_FILE",)


class ConfigError(ValueError):
    """A variable is missing or invalid; the text names it."""


@dataclass(frozen=True)
class ExecutorConfig:
    home: Path
    host: str
    broker_url: str
    #: Number of slots without a GPU; None on a host with real GPUs.
    virtual_slots: int | None
    #: Address at which other hosts reach this one; "": not set. See `workers.executor.machine`.
    address: str
    #: Read end of a pipe; when the pipe closes, everything on this host ends. None: no such pipe.
    lifeline_fd: int | None
    #: Number of slots that each real GPU offers.
    slots_per_gpu: int = 1
    #: File that is touched after each report that reached the broker, for health checks.
    alive_file: Path | None = None
    #: Network interface that has the address; "": any.
    interface: str = ""
    #: Folder for sockets and records on this machine's own disk; None: below the home.
    run: Path | None = None
    #: Environment of uv, which installs requirements: its own variables, and those for proxies and certificates.
    installer_environment: Mapping[str, str] = field(default_factory=dict)
    #: Largest size in bytes of installed requirements that nobody uses, with uv's cache; None: they only age.
    environments_bytes: int | None = None
    #: Key by which this host and the control plane sign their messages; "": they do not.
    key: str = field(default="", repr=False)
    #: Number of environments that no training uses any longer whose Python is kept running for a while.
    idle_forkservers: int = 4
    #: Name of the fleet that started this host; "": it was not started by one.
    fleet: str = ""
    #: Sources of notices that the machine will be gone.
    notice: NoticeOptions = field(default_factory=NoticeOptions)
    #: Whether trainings are kept apart; see `workers.executor.walls`.
    isolation: Isolation = "walled"
    #: Users that trainings are, where those of each person are a user of their own; None: they are the executor's.
    user_ids: UserIds | None = None
    #: Memory, processes and cores that a training may have for each slot.
    slot_limits: Amounts = field(default_factory=Amounts)
    #: Bytes of temporary files that a training may have for each slot; None: as many as there is room for.
    slot_scratch_bytes: int | None = None
    #: TCP ports, besides the broker's, that no training may connect to.
    closed_ports: tuple[int, ...] = ()
    #: First and last of the TCP ports at which other hosts reach processes of this one; None: any port.
    ports: tuple[int, int] | None = None
    #: Folders that all trainings may read, or change, besides their own.
    training_reads: tuple[Path, ...] = ()
    training_writes: tuple[Path, ...] = ()
    #: Files with this executor's passwords.
    secret_files: tuple[Path, ...] = ()
    #: Processors and bytes of memory that no training counts on.
    reserved_cores: float = 0.0
    reserved_memory_bytes: int = 0
    #: Whether systemd has started this executor.
    by_systemd: bool = False

    @property
    def sets_threads(self) -> bool:
        """Whether ranks have as many threads as cores; False: the operator has set a number for all processes."""
        return not self.installer_environment.keys() & {*THREAD_VARIABLES}

    @property
    def environments_folder(self) -> Path:
        """Folder of installed requirements, shared by all executors of this machine and home."""
        return (self.run or self.home / "run") / ".environments"

    @property
    def run_folder(self) -> Path:
        """Folder of sockets and records of this host's processes."""
        return (self.run or self.home / "run") / self.host

    @property
    def mark(self) -> str:
        """Mark in the environment of all processes of this installation on this host."""
        return host_mark(self.home, self.host)


def host_mark(home: Path, host: str) -> str:
    """Return the mark of a host. home: resolved."""
    return f"{hashlib.sha256(os.fsencode(home)).hexdigest()[:12]}.{host}"


def virtual_slots_of(environment: Mapping[str, str] = os.environ) -> int | None:
    """Return the number of virtual slots that this host is to offer; None: its real GPUs. Raises ConfigError."""
    slots = environment.get("TIDEPOOL_VIRTUAL_SLOTS")
    return _number("TIDEPOOL_VIRTUAL_SLOTS", slots) if slots else None


def self_test_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of a process that tests this host's GPUs: what ranks inherit, and the runtime's folder."""
    runtime = str(Path(tidepool.__file__).resolve().parents[1])
    order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "PYTHONPATH": runtime}
    return {**inherited_environment(environment), **order}


def executor_config(environment: Mapping[str, str] = os.environ) -> ExecutorConfig:
    lifeline_fd = environment.get("TIDEPOOL_LIFELINE_FD")
    alive_file = environment.get("TIDEPOOL_ALIVE_FILE")
    run = environment.get("TIDEPOOL_RUN")
    _check_image_engine(environment)
    _check_nccl_words(environment)
    return ExecutorConfig(
        home=Path(_required(environment, "TIDEPOOL_HOME")).resolve(),
        host=_required(environment, "TIDEPOOL_HOST_NAME"),
        broker_url=verified(_readable(_broker_url(environment)), _broker_ca_file(environment)),
        virtual_slots=virtual_slots_of(environment),
        address=environment.get("TIDEPOOL_ADDRESS", "").strip(),
        lifeline_fd=None if lifeline_fd is None else _number("TIDEPOOL_LIFELINE_FD", lifeline_fd),
        slots_per_gpu=_slots_per_gpu(environment.get("TIDEPOOL_SLOTS_PER_GPU", "1")),
        alive_file=Path(alive_file) if alive_file else None,
        interface=environment.get("TIDEPOOL_INTERFACE", "").strip(),
        run=Path(run).resolve() if run else None,
        installer_environment=_installer_environment(environment),
        environments_bytes=_gigabytes("TIDEPOOL_ENVIRONMENTS_GB", environment.get("TIDEPOOL_ENVIRONMENTS_GB", "")),
        key=_host_key(environment),
        idle_forkservers=_number("TIDEPOOL_FORKSERVERS", environment.get("TIDEPOOL_FORKSERVERS") or "4"),
        fleet=_fleet(environment.get("TIDEPOOL_FLEET", "").strip()),
        notice=_notice(environment),
        isolation=_isolation(environment.get("TIDEPOOL_ISOLATION") or "walled"),
        user_ids=_user_ids(environment),
        closed_ports=_ports(environment.get("TIDEPOOL_CLOSED_PORTS", "")),
        ports=_port_range(environment.get("TIDEPOOL_PORTS", "").strip()),
        training_reads=_folders("TIDEPOOL_TRAINING_READS", environment),
        training_writes=_folders("TIDEPOOL_TRAINING_WRITES", environment),
        secret_files=tuple(Path(environment[name]).resolve() for name in _SECRET_FILES if environment.get(name)),
        reserved_cores=_reserved_cores(environment.get("TIDEPOOL_RESERVED_CORES", "").strip()),
        reserved_memory_bytes=_reserved_memory(environment.get("TIDEPOOL_RESERVED_MEMORY", "").strip()),
        slot_scratch_bytes=_slot_scratch(environment),
        by_systemd="INVOCATION_ID" in environment,
        slot_limits=Amounts(
            _slot_memory(environment.get("TIDEPOOL_SLOT_MEMORY", "").strip()),
            _slot_processes(environment.get("TIDEPOOL_SLOT_PROCESSES", "").strip()),
            _slot_cores(environment.get("TIDEPOOL_SLOT_CORES", "").strip()),
        ),
    )


def _installer_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without Tidepool's secrets: installing a package may run its code."""
    given = {name: value for name, value in environment.items() if name.startswith(_FAMILIES) or name in _INSTALLER}
    # Pythons are the administrator's to install, unless that one lets uv fetch them.
    may_fetch = environment.get("TIDEPOOL_PYTHON_DOWNLOADS", "") not in ("", "0")
    fetching = {"UV_PYTHON_DOWNLOADS": "manual" if may_fetch else "never"}
    return inherited_environment(environment) | fetching | given


def _check_image_engine(environment: Mapping[str, str]) -> None:
    chosen = environment.get(CHOICE)
    if chosen and (chosen not in ENGINES or not engine_in(environment)):
        raise ConfigError(f"{CHOICE} names {chosen!r}: name {ENGINE_NAMES}, and install it on this host")


def _check_nccl_words(environment: Mapping[str, str]) -> None:
    """Ranks read the variables themselves, and would refuse a word only when they meet."""
    for name, words in ((NCCL_RECOVERY, NCCL_RECOVERIES), (NCCL_STATE, NCCL_STATES)):
        if (word := environment.get(name)) and word not in words:
            raise ConfigError(f"{name} must be one of {', '.join(words)}, not {word!r}")


def _isolation(text: str) -> Isolation:
    if text not in get_args(Isolation):
        raise ConfigError(f"TIDEPOOL_ISOLATION must be walled, separate, sealed or shared, not {text!r}")
    return cast(Isolation, text)


def _user_ids(environment: Mapping[str, str]) -> UserIds | None:
    level = environment.get("TIDEPOOL_ISOLATION")
    if level not in ("separate", "sealed"):
        return None
    if level == "sealed" and not (
        environment.get("TIDEPOOL_SLOT_MEMORY") and environment.get("TIDEPOOL_SLOT_PROCESSES")
    ):
        raise ConfigError(
            "TIDEPOOL_ISOLATION=sealed needs limits: set TIDEPOOL_SLOT_MEMORY to share, or such as 64GiB, and "
            "TIDEPOOL_SLOT_PROCESSES, such as 4096"
        )
    text = environment.get("TIDEPOOL_USER_IDS", "").strip()
    if not text:
        raise ConfigError(
            f"TIDEPOOL_ISOLATION={level} needs TIDEPOOL_USER_IDS: set it to a range of user ids that nobody has, such "
            "as 2100000000-2100099999, or to names"
        )
    try:
        return user_ids_in(text)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _ports(text: str) -> tuple[int, ...]:
    ports = tuple(_number("TIDEPOOL_CLOSED_PORTS", word) for word in text.replace(",", " ").split())
    if any(not 0 < port < 65536 for port in ports):
        raise ConfigError(f"TIDEPOOL_CLOSED_PORTS must be ports from 1 to 65535, not {text!r}")
    return ports


def _port_range(text: str) -> tuple[int, int] | None:
    if not text:
        return None
    found = re.fullmatch(r"(\d{1,5})-(\d{1,5})", text)
    first, last = map(int, found.groups()) if found else (0, 0)
    if not 1024 <= first <= last < 65536:
        raise ConfigError(
            f"TIDEPOOL_PORTS must be the first and the last port, from 1024 to 65535, such as 20000-29999, not {text!r}"
        )
    return first, last


def _folders(name: str, environment: Mapping[str, str]) -> tuple[Path, ...]:
    folders = tuple(Path(part) for part in environment.get(name, "").split(os.pathsep) if part)
    if relative := [folder for folder in folders if not folder.is_absolute()]:
        raise ConfigError(f"{name} must be absolute paths, and {str(relative[0])!r} is none")
    return tuple(folder.resolve() for folder in folders)


def _reserved_cores(text: str) -> float:
    if not re.fullmatch(r"\d{0,6}(\.\d{1,3})?", text):
        raise ConfigError(f"TIDEPOOL_RESERVED_CORES must be a number such as 2 or 0.5, not {text!r}")
    return float(text or 0)


def _reserved_memory(text: str) -> int:
    size = size_in(text) if text else 0
    if size is None:
        raise ConfigError(f"TIDEPOOL_RESERVED_MEMORY must be a size such as 8GiB, not {text!r}")
    return size


def _slot_memory(text: str) -> int | Literal["share"] | None:
    if text == "share":
        return "share"
    size = size_in(text) if text else None
    if text and (size is None or size < LEAST_MEMORY):
        raise ConfigError(
            f"TIDEPOOL_SLOT_MEMORY must be share, or a size of at least 64MiB, such as 32GiB, not {text!r}"
        )
    return size


def _slot_cores(text: str) -> float | Literal["share"] | None:
    if text in ("", "share"):
        return "share" if text else None
    if not re.fullmatch(r"\d{1,6}(\.\d{1,3})?", text) or float(text) < LEAST_CORES:
        raise ConfigError(
            f"TIDEPOOL_SLOT_CORES must be share, or a number of at least {LEAST_CORES}, such as 4 or 1.5, not {text!r}"
        )
    return float(text)


def _slot_scratch(environment: Mapping[str, str]) -> int | None:
    text = environment.get("TIDEPOOL_SLOT_SCRATCH", "").strip()
    size = size_in(text) if text else None
    if text and (size is None or size < _LEAST_SCRATCH):
        raise ConfigError(f"TIDEPOOL_SLOT_SCRATCH must be a size of at least 64MiB, such as 200GiB, not {text!r}")
    if text and environment.get("TIDEPOOL_ISOLATION") == "shared":
        raise ConfigError("TIDEPOOL_SLOT_SCRATCH needs walls: without, trainings share one folder of temporary files")
    return size


def _slot_processes(text: str) -> int | None:
    number = _number("TIDEPOOL_SLOT_PROCESSES", text) if text else None
    if number is not None and number < _FEWEST_PROCESSES:
        raise ConfigError(f"TIDEPOOL_SLOT_PROCESSES must be at least {_FEWEST_PROCESSES}, not {text!r}")
    return number


def _gigabytes(name: str, text: str) -> int | None:
    """Return a number of GB in bytes; None if it is not set."""
    return _number(name, text) * 10**9 if text else None


def _broker_url(environment: Mapping[str, str]) -> str:
    """Return the broker's URL. A file keeps the password that the URL contains out of the environment."""
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


def _readable(broker_url: str) -> str:
    if not is_readable(broker_url):
        raise ConfigError(f"the broker's URL has no valid host and port: {IN_BRACKETS}")
    return broker_url


def _host_key(environment: Mapping[str, str]) -> str:
    file = environment.get("TIDEPOOL_HOST_KEY_FILE")
    if not file:
        return ""
    try:
        key = Path(file).read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise ConfigError(f"TIDEPOOL_HOST_KEY_FILE cannot be read ({error}): join again with a new token") from None
    if not key:
        raise ConfigError(f"TIDEPOOL_HOST_KEY_FILE names {file}, which is empty: join again with a new token")
    return key


def _broker_ca_file(environment: Mapping[str, str]) -> Path | None:
    file = environment.get("TIDEPOOL_BROKER_CA_FILE")
    if not file:
        return None
    if not os.access(file, os.R_OK):
        raise ConfigError(f"TIDEPOOL_BROKER_CA_FILE names {file}, which cannot be read: let this user read it")
    return Path(file).resolve()


def _notice(environment: Mapping[str, str]) -> NoticeOptions:
    file, moment = environment.get("TIDEPOOL_NOTICE_FILE"), environment.get("TIDEPOOL_LEAVING_AT", "").strip()
    leaving_at = moment_in(moment, time.time()) if moment else None
    if moment and leaving_at is None:
        raise ConfigError(f"TIDEPOOL_LEAVING_AT must be Unix seconds, an ISO 8601 time or +seconds, not {moment!r}")
    url = environment.get("TIDEPOOL_METADATA_URL", "").strip()
    if url and not url.startswith(("http://", "https://")):
        raise ConfigError(f"TIDEPOOL_METADATA_URL must begin with http:// or https://, not {url!r}")
    try:
        command = shlex.split(environment.get("TIDEPOOL_NOTICE_COMMAND", ""))
    except ValueError as error:
        raise ConfigError(f"TIDEPOOL_NOTICE_COMMAND cannot be read ({error}): write it as in a shell") from None
    return NoticeOptions(
        file=Path(file) if file else None,
        command=tuple(command),
        cloud=_cloud(environment.get("TIDEPOOL_NOTICE", "").strip().lower()),
        metadata_url=url,
        leaving_at=leaving_at,
        usual_seconds=_number("TIDEPOOL_NOTICE_SECONDS", environment.get("TIDEPOOL_NOTICE_SECONDS") or "30"),
    )


def _cloud(name: str) -> Cloud | None:
    if name in ("aws", "gce", "azure"):
        return cast(Cloud, name)
    if name:
        raise ConfigError(f"TIDEPOOL_NOTICE must be aws, gce or azure, not {name!r}")
    return None


def _fleet(name: str) -> str:
    if name and not FLEET_NAME.fullmatch(name):
        raise ConfigError(f"TIDEPOOL_FLEET must be at most 64 letters, digits, dots, dashes and underscores: {name!r}")
    return name


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
