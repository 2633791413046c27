"""A rank's place in its job: the only module of the runtime that reads the environment.

The shim writes these variables before it runs the script. Off the cluster none of them is set and
`rank_context()` is None: the same script then trains alone, as rank 0 of 1.
"""

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from tidepool.inherited_environment import NCCL_RECOVERIES, NCCL_RECOVERY, NCCL_STATE, NCCL_STATES

if TYPE_CHECKING:
    from tidepool.protocol import LaunchSpec

__all__ = [
    "COUNT_VARIABLE",
    "THREAD_VARIABLES",
    "RankContext",
    "adaptdl_variable",
    "ask_for_reproducible_kernels",
    "command_environment",
    "core_variables",
    "data_folder",
    "fault_spec",
    "granted_cores",
    "holds_gpu",
    "is_in_group",
    "keep_secret",
    "lend_secret",
    "local_process_environment",
    "log_folder",
    "logging_into",
    "nccl_recovery",
    "nccl_state",
    "prepare_nccl",
    "program_folders",
    "put_first_on_path",
    "rank_context",
    "rank_environment",
    "result_folder",
    "share_fabric_home",
    "share_faults",
    "site_of",
    "training_id",
    "use_home",
    "use_name",
    "use_temporary_folder",
    "use_virtual_environment",
    "uses_gpu_part",
]


#: Variable with the number of a descriptor from which the secret can be read.
_LENT_AT = "TIDEPOOL_SECRET_FD"


@dataclass(frozen=True)
class RankContext:
    job: int
    attempt: int
    #: Rank id, never reused within an attempt: `<host>.<slot>.<n>`.
    member_id: str
    host: str
    slot: int
    #: Address that this host's collectives and listeners bind to.
    address: str
    launch: "LaunchSpec"
    #: Revision of the desired state that this rank was started for.
    target_revision: int = 0
    #: See `DesiredJob.secret`; "" in a process that the rank's has started.
    secret: str = field(default="", repr=False)

    @property
    def folder(self) -> Path:
        """The attempt's folder: journals, metrics, checkpoints, models, logs."""
        return Path(self.launch.folder)

    @property
    def log_dir(self) -> Path:
        return self.folder / "log" / f"{self.member_id}.{self.host}"

    def title(self, place: str = "") -> str:
        """Return the title of this rank's process. `place`: which rank of how many, once that is known."""
        owner = f" ({self.launch.owner})" if self.launch.owner else ""
        return f"tidepool rank{place}: training {self.job}{owner}"


#: The secret of this rank's attempt, which is in no variable: processes that the script starts inherit those.
_secret = ""


def keep_secret(secret: str) -> None:
    """Have `rank_context` return this secret in this process, and in those that it forks."""
    global _secret
    _secret = secret


@contextmanager
def lend_secret() -> Iterator[tuple[dict[str, str], list[int]]]:
    """Yield a variable and the descriptors with which a command knows the secret that runs in this rank's place."""
    secret = _secret or _lent_secret()
    if not secret:
        yield {}, []
        return
    descriptor = os.memfd_create("tidepool-secret")
    try:
        os.pwrite(descriptor, secret.encode(), 0)
        yield {_LENT_AT: str(descriptor)}, [descriptor]
    finally:
        os.close(descriptor)


def _lent_secret() -> str:
    """Return the secret that `lend_secret` has given this process; "": none, or the descriptor was not inherited."""
    number = os.environ.get(_LENT_AT, "")
    try:
        if number and os.readlink(f"/proc/self/fd/{number}").startswith("/memfd:tidepool-secret"):
            return os.pread(int(number), 256, 0).decode()
    except OSError:  # this process was started without it
        return ""
    return ""


def rank_environment(context: RankContext, launch_file: Path) -> dict[str, str]:
    """Variables of a rank beyond the executor's allow-list. `launch_file` holds the LaunchSpec as JSON."""
    folder = context.folder
    return {
        **context.launch.environment,
        "TIDEPOOL_JOB": str(context.job),
        "TIDEPOOL_ATTEMPT": str(context.attempt),
        "TIDEPOOL_MEMBER_ID": context.member_id,
        "TIDEPOOL_HOST": context.host,
        "TIDEPOOL_SLOT": str(context.slot),
        "TIDEPOOL_ADDRESS": context.address,
        "TIDEPOOL_LAUNCH": str(launch_file),
        "TIDEPOOL_TARGET_REVISION": str(context.target_revision),
        **({"DATA_DIR": context.launch.data_dir} if context.launch.data_dir else {}),
        "RESULT_DIR": str(folder),
        "LOG_DIR": str(context.log_dir),
        "CHECKPOINT_DIR": str(folder / "checkpoint"),
        "SAVED_MODEL_DIR": str(folder / "model"),
    }


#: Variables with the number of threads of OpenMP, MKL and OpenBLAS.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
#: Variable by which Python 3.13 and later tell a number of CPUs; "default": those of the machine.
COUNT_VARIABLE = "PYTHON_CPU_COUNT"


def core_variables(cores: float, threads: int | None) -> dict[str, str]:
    """Return the variables of a rank that may count on so many cores. threads: of its libraries; None: as they are."""
    chosen = {} if threads is None else dict.fromkeys(THREAD_VARIABLES, str(threads))
    return {"TIDEPOOL_CORES": f"{round(cores, 3):g}", COUNT_VARIABLE: str(max(1, int(cores))), **chosen}


def granted_cores() -> float | None:
    """Return the cores that this rank may count on; None off the cluster."""
    granted = os.environ.get("TIDEPOOL_CORES")
    return float(granted) if granted else None


def site_of(environment: Path) -> Path:
    """Return the folder of a virtual environment's packages, of whichever Python; of this one before they are there."""
    own = environment / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    return next((environment / "lib").glob("python*/site-packages"), own)


def rank_context() -> RankContext | None:
    """This process's place in a job, or None off the cluster."""
    launch_file = os.environ.get("TIDEPOOL_LAUNCH")
    if launch_file is None:
        return None
    # Here, because the client's wheel has this module and not what the protocol requires.
    from tidepool.protocol import LaunchSpec, from_json

    return RankContext(
        job=int(os.environ["TIDEPOOL_JOB"]),
        attempt=int(os.environ["TIDEPOOL_ATTEMPT"]),
        member_id=os.environ["TIDEPOOL_MEMBER_ID"],
        host=os.environ["TIDEPOOL_HOST"],
        slot=int(os.environ["TIDEPOOL_SLOT"]),
        address=os.environ["TIDEPOOL_ADDRESS"],
        launch=from_json(LaunchSpec, json.loads(Path(launch_file).read_text())),
        target_revision=int(os.environ["TIDEPOOL_TARGET_REVISION"]),
        secret=_secret or _lent_secret(),
    )


def is_in_group() -> bool:
    """Return whether this process is one of a group, or the only one, that torchrun's variables describe."""
    return "RANK" in os.environ


def local_process_environment(rank: int, count: int, port: str) -> dict[str, str]:
    """Return the environment of one of several processes on this host's CPUs, as `torchrun --standalone` sets it."""
    number, size = str(rank), str(count)
    return {
        **os.environ,
        "RANK": number,
        "LOCAL_RANK": number,
        "ROLE_RANK": number,
        "GROUP_RANK": "0",
        "ROLE_NAME": "default",
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": size,
        "ROLE_WORLD_SIZE": size,
        "GROUP_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "CUDA_VISIBLE_DEVICES": "",
    }


def command_environment() -> dict[str, str]:
    """Variables of a command that runs in this rank's place: a node of one device, whichever rank of its host it is.

    `python` and `torchrun` are those of this process. Scripts for WMLA start `torchrun` by the names of WMLA's.
    """
    values, number = dict(os.environ), int(os.environ.get("LOCAL_RANK", "0"))
    rank, size = values.get("RANK", "0"), values.get("WORLD_SIZE", "1")
    if "RANK" in values:
        values |= {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": rank, "GROUP_WORLD_SIZE": size}
        if values.get("CUDA_VISIBLE_DEVICES"):
            values["CUDA_VISIBLE_DEVICES"] = values["CUDA_VISIBLE_DEVICES"].split(",")[number]
    values["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), values.get("PATH", os.defpath)])
    return values | {"NODE_RANK": rank, "WMLA_NWORKER": size, "WMLA_WORKER_NDEVICE": "1"}


def data_folder() -> Path:
    """Return the dataset: DATA_DIR, on the cluster and off it; the working folder where that is not set."""
    return Path(os.environ.get("DATA_DIR") or ".")


def result_folder() -> Path | None:
    """RESULT_DIR; None where it is not set."""
    folder = os.environ.get("RESULT_DIR")
    return Path(folder) if folder else None


def own_log_folder() -> Path | None:
    """LOG_DIR; None where it is not set."""
    folder = os.environ.get("LOG_DIR")
    return Path(folder) if folder else None


def log_folder() -> Path:
    """Folder for the logs of a WMLA script: LOG_DIR, else below JOB_STATE_DIR, else the folder for temporary files."""
    if folder := own_log_folder():
        return folder
    state = os.environ.get("JOB_STATE_DIR")
    return Path(state, "logs") if state else Path(tempfile.gettempdir())


@contextmanager
def logging_into(folder: Path) -> Iterator[None]:
    """Set LOG_DIR to `folder` in the block: scripts of WMLA look for it each time that they log."""
    before = os.environ.get("LOG_DIR")
    os.environ["LOG_DIR"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["LOG_DIR"]
        else:
            os.environ["LOG_DIR"] = before


def adaptdl_variable(name: str) -> str | None:
    """Return `ADAPTDL_<name>`, a variable of scripts written for AdaptDL; None where it is not set."""
    return os.environ.get(f"ADAPTDL_{name}")


def training_id() -> str:
    """Name of this training in WMLA; "" off the cluster."""
    return os.environ.get("TRAINING_ID") or os.environ.get("DLI_EXECID") or ""


def program_folders() -> list[str]:
    """Return the folders of programs, and of the libraries that they are told to load."""
    return [folder for name in ("PATH", "LD_LIBRARY_PATH") for folder in os.environ.get(name, "").split(os.pathsep)]


def put_first_on_path(folder: Path) -> None:
    """Have programs in this folder found first."""
    os.environ["PATH"] = os.pathsep.join([str(folder), os.environ.get("PATH", os.defpath)])


def use_virtual_environment(folder: Path) -> None:
    """Have this process start Python, and programs that were installed with it, in the virtual environment."""
    os.environ["VIRTUAL_ENV"] = str(folder)
    put_first_on_path(folder / "bin")
    sys.executable = str(folder / "bin" / "python")


def use_home(folder: Path) -> None:
    """Have this process, and all that it starts, keep its user's files there."""
    os.environ["HOME"] = str(folder)


def use_name(name: str) -> None:
    """Have this process, and all that it starts, take this for the name of their user."""
    os.environ.update(USER=name, LOGNAME=name)


def use_temporary_folder(folder: str) -> None:
    """Have this process, and all that it starts, put temporary files there."""
    os.environ["TMPDIR"] = folder
    tempfile.tempdir = None


def share_fabric_home(folder: Path) -> None:
    """Tell the ranks of this forkserver where WMLA's `libs/fabric.zip` is."""
    os.environ["FABRIC_HOME"] = str(folder)


def fault_spec() -> str | None:
    """Return `TIDEPOOL_FAULT`, such as `name:n:action`: tests make the n-th passage of a fault point fail."""
    return os.environ.get("TIDEPOOL_FAULT")


def share_faults(launch: "LaunchSpec") -> None:
    """Have this coordinator obey the fault points that a test sets for the ranks of its job."""
    spec = launch.environment.get("TIDEPOOL_FAULT")
    if spec is not None:
        os.environ["TIDEPOOL_FAULT"] = spec


def ask_for_reproducible_kernels() -> None:
    """Ask cuBLAS to sum in one order; it reads this when it is used for the first time in this process."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def prepare_nccl(connect_seconds: float) -> None:
    """Set NCCL's switches, which it reads when the first communicator is made.

    By default torch ends the process upon an error, also when a peer is slow, and a connect waits for half an hour.
    """
    os.environ.update(
        TORCH_NCCL_ASYNC_ERROR_HANDLING="0",
        TORCH_NCCL_ENABLE_MONITORING="0",
        # NCCL's watchdog would sleep for a minute with its lock, and have later ranks of the store dump their stacks.
        TORCH_NCCL_DUMP_ON_TIMEOUT="0",
        TORCH_NCCL_RETHROW_CUDA_ERRORS="0",
        TORCH_NCCL_NONBLOCKING_TIMEOUT=str(max(1, round(connect_seconds))),
    )
    # Rings and trees are connected beside the old group, and not by the first step of the new one.
    os.environ.setdefault("NCCL_RUNTIME_CONNECT", "0")
    # Memory that peers have mapped goes with its process, without an illegal access in theirs.
    os.environ.setdefault("NCCL_CUMEM_ENABLE", "1")


def nccl_recovery() -> Literal["shrink", "abort", "process"]:
    """Return what becomes of NCCL's communicator after a death. Raises RuntimeError for a word that is none of them."""
    return cast("Literal['shrink', 'abort', 'process']", _word_of(NCCL_RECOVERY, NCCL_RECOVERIES))


def nccl_state() -> Literal["broadcast", "sockets"]:
    """Return how the state reaches new GPUs. Raises RuntimeError for a word that is none of them."""
    return cast("Literal['broadcast', 'sockets']", _word_of(NCCL_STATE, NCCL_STATES))


def _word_of(name: str, words: Sequence[str]) -> str:
    """Return the value of a variable; the first of the words where it is not set."""
    word = os.environ.get(name) or words[0]
    if word not in words:
        raise RuntimeError(f"{name} is {word!r}: set it to one of {', '.join(words)}")
    return word


def holds_gpu() -> bool:
    """Return whether this process was given a GPU that it may see."""
    return bool(os.environ.get("CUDA_VISIBLE_DEVICES"))


def uses_gpu_part() -> bool:
    """Return whether this process has an instance of a GPU that MIG divides."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "").startswith("MIG-")
