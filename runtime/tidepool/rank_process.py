"""A rank's first and last moments: from the fork in the shim to the user's script, and out again.

The shim forks; the child calls `run_rank` and never returns from it.
"""

import atexit
import json
import os
import runpy
import signal
import site
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from tidepool import (
    adaptdl_environment,
    nni_environment,
    own_checkpoints,
    procfs,
    stand_ins,
    tracking,
    wmla_environment,
)
from tidepool.env import (
    RankContext,
    core_variables,
    keep_secret,
    nccl_recovery,
    put_first_on_path,
    rank_context,
    rank_environment,
    site_of,
)
from tidepool.first_process import is_named_first
from tidepool.function_payload import CALL_FILE, CALLER
from tidepool.gang import join_gang, local_rank_words
from tidepool.gpu_shortage import memory_record
from tidepool.inherited_environment import fabric_variables, inherited_environment
from tidepool.journal import replace_file
from tidepool.leftovers import watch_leftovers
from tidepool.network_interfaces import interface_variables, interfaces
from tidepool.own_cores import threads_on
from tidepool.own_python import enter_own_python
from tidepool.plain_groups import watch_group
from tidepool.rank_cpus import bind_to, tell_share
from tidepool.rank_exits import ERROR_FILE
from tidepool.rank_logs import open_logs
from tidepool.rank_niceness import yield_to_others
from tidepool.recordings.recorder import Recorder
from tidepool.requirement_files import projects_in
from tidepool.script_modules import module_of
from tidepool.secret_masks import Mask
from tidepool.shim_slots import SlotGpus

__all__ = [
    "GROUPED",
    "LINGERS",
    "READY",
    "RankReleased",
    "RankStart",
    "at_error",
    "at_success",
    "could_train",
    "is_first",
    "note_micro_batch",
    "note_rank",
    "note_step",
    "run_rank",
]

#: Bytes that a rank sends to its shim: the user's script begins, and the rank could join the training.
RUNNING = b"R"
READY = b"T"
#: Byte of a script without a session that has formed a process group of torch.distributed.
GROUPED = b"G"
#: Byte of a script that has ended and left a thread or process that still runs.
LINGERS = b"L"

#: Exceptions that left the script. They hold its frames: a DDP model in a frame that outlives its process group may
#: wait forever in its destructor, for a thread of gloo's that waits for the interpreter.
_ends: list[BaseException] = []
#: Called when the script has ended without an error.
_at_success: list[Callable[[], None]] = []
#: Called with the error that has ended the script.
_explanations: list[Callable[[BaseException], BaseException | None]] = []
#: Adds metrics to the newest step's record, of the training that this process has begun last.
_reporters: list[Callable[[Mapping[str, float]], None]] = []
#: Mask of the rank's secrets, over what it records of its error.
_masks: list[Mask] = []
#: Socket to the shim; empty in processes that are no rank.
_shim_sockets: list[socket.socket] = []
#: Number of completed steps; None: no training has begun here.
_step: int | None = None
#: Kind of GPU and samples of the largest micro-batch of the step under way, where the batch adapts.
_micro_batch: tuple[str, int] | None = None
#: The coordinator's answer whether this rank comes first, once the script has asked before its training.
_named_first: list[bool] = []
#: Rank of this process in the group of its session; None: it has no session.
_rank: int | None = None
_RUNTIME_ROOT = Path(__file__).resolve().parents[1]
#: Further files whose frames tracebacks leave out: they call a function or a cell that came with a training.
_CALLERS = {CALLER, *(str(_RUNTIME_ROOT / "tidepool" / name) for name in ("function_runner.py", "notebook_cells.py"))}


class RankReleased(SystemExit):
    """This rank is not needed any more: its script ends here, and the training goes on, or is over, without it."""

    def __init__(self) -> None:
        super().__init__(0)


@dataclass(frozen=True)
class RankStart:
    context: RankContext
    #: Holds the LaunchSpec as JSON.
    launch_file: Path
    mark: str
    #: Slots that the process holds.
    slots: tuple[int, ...]
    #: GPUs of the host's slots; None: there are no GPUs; hide those that the machine may have.
    gpus: SlotGpus | None
    shim_pid: int
    #: Folder of the virtual environment with what the job requires; "": it requires nothing.
    environment: str = ""
    #: Secrets of users as variables, and the values to mask.
    secret_variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    secret_values: tuple[str, ...] = field(default=(), repr=False)
    #: Cores that the process may count on, and whether it has as many threads.
    cores: float = 1.0
    sets_threads: bool = True
    #: Descriptors that stdout and stderr go to; None: the rank writes its logs itself.
    log_writers: tuple[int, int] | None = None

    @property
    def threads(self) -> int | None:
        """Number of threads of its libraries; None: as their variables say.

        The number decides in which order sums are made, so it is the same everywhere where each bit counts.
        """
        if not self.sets_threads:
            return None
        return threads_on(self.cores) if self.context.launch.virtual_ranks is None else 1


def run_rank(start: RankStart, shim_socket: socket.socket) -> NoReturn:
    """Run the script in this freshly forked process and end it. End too when `shim_socket` closes."""
    try:
        _leave_shim(start.shim_pid, {shim_socket.fileno(), *(start.log_writers or ())})
        if start.gpus is None:
            yield_to_others()
        else:
            bind_to(start.gpus.near(start.slots))
        _masks.append(Mask(start.secret_values))
        open_logs(start.context.log_dir, start.log_writers)
        _set_environment(start)
        tell_share(os.environ, start.context.slot)
        procfs.set_title(start.context.title())
        _open_nursery(start.context)
        threading.Thread(
            target=_end_with_shim, args=(shim_socket, start.context.log_dir), name="shim-watch", daemon=True
        ).start()
        required = _enter_environment(start.environment)
        required[:0] = enter_own_python(start.context)
        _enter_code_folder(start.context, required)
        if start.context.launch.engine != "elastic":
            _enter_gang(start)
        if start.context.launch.engine == "fixed":
            threading.Thread(target=_report_group, args=(shim_socket,), name="group-watch", daemon=True).start()
        _shim_sockets.append(shim_socket)
        shim_socket.send(RUNNING)
        code = _run_script(start.context)
        _run_exit_functions(code, start.context.launch.linger_seconds, shim_socket)
    except BaseException as error:
        code = 1
        traceback.print_exc()
        _record_error(start.context.log_dir, type(error).__name__, *_story(error))
    finally:
        _flush()
        os._exit(code)


def _open_nursery(context: RankContext) -> None:
    """Prepare for NCCL in a process of its own, if the site wants that. Not later: threads and CUDA are not forked."""
    if context.launch.engine == "elastic" and "torch" in sys.modules and nccl_recovery() == "process":
        from tidepool.torch.comm.child_process import open_nursery

        open_nursery()


def _enter_gang(start: RankStart) -> None:
    context = start.context
    own_checkpoints.remove_half_written(context)
    os.environ.update(join_gang(context, gpus=start.gpus))
    sys.argv[1:1] = local_rank_words(context.launch, os.environ)
    if wmla_environment.COMPAT in context.launch.compat and os.environ.get("RANK", "0") == "0":
        wmla_environment.link_recorded_metrics(context)
    if tracking.is_to_log(context.launch, os.environ):
        tracking.log_by_themselves()
    own_checkpoints.hook_libraries(context, _number(), int(os.environ.get("WORLD_SIZE", "1")))


def _leave_shim(shim_pid: int, kept_descriptors: set[int]) -> None:
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN if number == signal.SIGPIPE else signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    procfs.die_with_parent(shim_pid)
    procfs.close_descriptors(keep={0, 1, 2, *kept_descriptors})


def _set_environment(start: RankStart) -> None:
    kept = inherited_environment(os.environ)
    # Beside the runtime, in an image: what it needs there.
    beside = [entry for entry in os.environ["PYTHONPATH"].split(os.pathsep) if entry != str(_RUNTIME_ROOT)]
    fabric_home = kept.pop("FABRIC_HOME", "")
    compat, _ = _compat_folders(start.context)
    os.environ.clear()
    os.environ.update(kept)
    keep_secret(start.context.secret)
    os.environ["PYTHONPATH"] = os.pathsep.join([*compat, str(_RUNTIME_ROOT), *beside])
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # the order in which NVML numbers the slots
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(start.gpus.of(start.slots) if start.gpus else ())
    if wmla_environment.COMPAT in start.context.launch.compat:
        os.environ.update(wmla_environment.environment(start.context, _RUNTIME_ROOT, fabric_home))
    if adaptdl_environment.COMPAT in start.context.launch.compat:
        os.environ.update(adaptdl_environment.environment(start.context))
    if nni_environment.COMPAT in start.context.launch.compat:
        os.environ.update(nni_environment.environment(start.context))
    os.environ.update(core_variables(start.cores, start.threads))
    path = os.environ["PYTHONPATH"]
    os.environ.update(interface_variables(start.context.address, interfaces()) | fabric_variables(kept))
    os.environ.update(rank_environment(start.context, start.launch_file))  # the job's own variables win
    os.environ["PYTHONPATH"] = os.pathsep.join([path, *_asked_for(start.context)])
    os.environ.update(start.secret_variables)
    access = tracking.access_variables(Path(start.context.launch.folder), dict(os.environ))
    os.environ.update(access)
    if own_experiment := access.get("MLFLOW_EXPERIMENT_NAME"):
        tracking.refuse_experiments(own_experiment, is_first)
    procfs.set_mark(start.mark)


def _end_with_shim(shim_socket: socket.socket, log_dir: Path) -> None:
    """Record what the shim requests, until it has ended: then this process ends, too."""
    try:
        recorder = Recorder(log_dir)
        while requests := shim_socket.recv(4096):
            recorder.receive(requests)
    finally:
        os._exit(1)


def _report_group(shim_socket: socket.socket) -> None:
    watch_group(os.environ, lambda: shim_socket.sendall(GROUPED))


def _enter_environment(environment: str) -> list[str]:
    """Put this process, and those that it starts, into the virtual environment; return the folders of its packages."""
    put_first_on_path(Path(sys.executable).parent)
    if not environment:
        return []
    folder = Path(environment)
    if (folder / "conda-meta").is_dir():
        os.environ["CONDA_PREFIX"] = environment
    put_first_on_path(folder / "bin")
    before = set(sys.path)
    site.addsitedir(str(site_of(folder)))
    added = [entry for entry in sys.path if entry not in before]
    sys.path[:] = [entry for entry in sys.path if entry in before]
    return added


def _enter_code_folder(context: RankContext, required: list[str]) -> None:
    script = _script(context)
    os.chdir(context.launch.code_folder)
    sys.argv = [str(script), *context.launch.arguments]
    compat, behind = _compat_folders(context)
    if wmla_environment.COMPAT in context.launch.compat:
        wmla_environment.link_submitted_code(context)
        if script.parent != Path(context.launch.code_folder):  # the model's own modules come before ours of that name
            compat.insert(0, context.launch.code_folder)
    installed = [entry for entry in sys.path if Path(entry).resolve() != _RUNTIME_ROOT]
    module = module_of(Path(context.launch.code_folder), context.launch.entry_point)
    own = script.parent if module is None else Path(context.launch.code_folder, module.root)
    sys.path[:] = [str(own), *compat, *_asked_for(context), *required, *installed, str(_RUNTIME_ROOT), *behind]
    # Asked by name alone: libraries look whether there is a pyspark to choose what they do.
    if stand_ins.is_named([*script.parent.glob("*.py"), script.parent / CALL_FILE]):
        stand_ins.offer()
    _use_threads()
    if "numpy" in sys.modules:  # the fork copied its generator: without this all ranks draw the same numbers
        sys.modules["numpy"].random.seed()


def _use_threads() -> None:
    """Have a torch that the fork brought along use as many threads as the variables say: it has read them before."""
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if "torch" in sys.modules and threads.isdigit():
        sys.modules["torch"].set_num_threads(max(1, int(threads)))


def _compat_folders(context: RankContext) -> tuple[list[str], list[str]]:
    """Return folders of modules of other systems: those before what is installed, and those behind it.

    In a trial, our `nni` has the values. In another training, an installed one may have more than ours.
    """
    folders = {name: str(_RUNTIME_ROOT / "compat" / name) for name in context.launch.compat}
    behind = folders.pop(nni_environment.COMPAT, None) if not nni_environment.is_trial(context) else None
    return list(folders.values()), [] if behind is None else [behind]


def _asked_for(context: RankContext) -> list[str]:
    """Folders of the own projects among the requirements, and of a PYTHONPATH that the submission gave.

    They come behind those that the script needs here.
    """
    places = [Path(context.launch.code_folder, place) for place in projects_in(context.launch.requirements)]
    projects = [str(place / "src" if (place / "src").is_dir() else place) for place in places]
    given = context.launch.environment.get("PYTHONPATH", "").split(os.pathsep)
    return [*projects, *filter(None, given)]


def _script(context: RankContext) -> Path:
    return Path(context.launch.code_folder) / context.launch.entry_point


def _run_script(context: RankContext) -> int:
    """Run the script; return the exit code that `python script.py`, or `python -m package.script`, would have had."""
    try:
        _run_to_its_end(context)
        code = 0
    except SystemExit as error:
        _ends.append(error)
        code = _exit_code(error, context.log_dir)
    except BaseException as error:
        _ends.append(error)
        message, text = _story(error)
        told = next(filter(None, (explain(error) for explain in _explanations)), None)
        if told is not None:
            message, text = str(told), f"{text}{type(told).__name__}: {told}\n"
        sys.stderr.write(text)
        _record_error(context.log_dir, type(told or error).__name__, message, text)
        code = 1
    return code


def _run_exit_functions(code: int, linger_seconds: float, shim_socket: socket.socket) -> None:
    """Do what the interpreter does at its end. It waits for threads and processes, which may never end."""

    def tell() -> None:
        with suppress(OSError):  # the shim is gone, and this process ends with it
            shim_socket.send(LINGERS)

    is_flushed = tracking.flush()
    watch_leftovers(code, linger_seconds, tell)
    if is_flushed:
        threading._shutdown()  # type: ignore[attr-defined]  # what the interpreter does before its exit handlers
    atexit._run_exitfuncs()


def _run_to_its_end(context: RankContext) -> None:
    module = module_of(Path(context.launch.code_folder), context.launch.entry_point)
    try:
        if module is None:
            runpy.run_path(str(_script(context)), run_name="__main__")
        else:
            runpy.run_module(module.name, run_name="__main__", alter_sys=True)
    except SystemExit as error:
        _ends.append(error)
        if error.code or isinstance(error, RankReleased):
            raise
    for call in _at_success:
        call()


def _exit_code(error: SystemExit, log_dir: Path) -> int:
    if error.code is None or error.code == 0:
        return 0
    if isinstance(error.code, int):
        code, message = error.code & 0xFF, f"the script exited with code {error.code & 0xFF}"
    else:
        code, message = 1, f"the script exited with: {error.code}"
        sys.stderr.write(f"{error.code}\n")
    _record_error(log_dir, "SystemExit", message, _story(error)[1])
    return code


def _story(error: BaseException) -> tuple[str, str]:
    """Message and traceback as the script's author expects them: without our frames and runpy's."""
    lines = traceback.format_exception(type(error), error, _user_frames(error.__traceback__))
    return str(error), "".join(lines)


def _user_frames(frames: TracebackType | None) -> TracebackType | None:
    while frames is not None and _file(frames) in (__file__, "<frozen runpy>", runpy.__file__):
        frames = frames.tb_next
    first = frames
    while first is not None and _file(first) not in _CALLERS:
        first = first.tb_next
    while first is not None and _file(first) in _CALLERS:
        first = frames = first.tb_next
    return frames


def _file(frames: TracebackType) -> str:
    return frames.tb_frame.f_code.co_filename


def _record_error(log_dir: Path, kind: str, message: str, text: str) -> None:
    for mask in _masks:
        message, text = mask.text(message), mask.text(text)
    error = {"kind": kind, "message": message, "traceback": text, "step": _step, "rank": _number()}
    batch = {} if _micro_batch is None else {"micro_batch": dict(zip(("kind", "samples"), _micro_batch, strict=True))}
    replace_file(log_dir / ERROR_FILE, json.dumps({**error, **batch, **memory_record(kind)}))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the script closed it, or the disk is full: nowhere left to report it
            stream.flush()


def could_train() -> None:
    """Tell the shim that this rank's script has come to its training. Further calls do nothing."""
    while _shim_sockets:
        _shim_sockets.pop().send(READY)


def at_error(explain: Callable[[BaseException], BaseException | None]) -> None:
    """Register a function that is called with an error of the script, and returns one to report instead, or None."""
    _explanations.append(explain)


def at_success(call: Callable[[], None]) -> None:
    """Register a function that is called when the script has ended without an error and the rank is still needed."""
    _at_success.append(call)


def report_by(call: Callable[[Mapping[str, float]], None]) -> None:
    """Register the function that `report` calls, in place of an earlier one."""
    _reporters[:] = [call]


def report(values: Mapping[str, float]) -> bool:
    """Add metrics to the newest step's record of this process's training; False: it has not begun."""
    for call in _reporters:
        call(values)
    return bool(_reporters)


def note_micro_batch(kind: str, samples: int) -> None:
    """Remember the micro-batch of this rank, where the batch adapts, for the record of the rank's end."""
    global _micro_batch
    _micro_batch = kind, samples


def note_step(step: int) -> None:
    """Remember the number of completed steps, for the record of this rank's end."""
    global _step
    _step = step


def note_rank(rank: int) -> None:
    """Remember the rank of this process in the group of its session."""
    global _rank
    if rank == 0 and _named_first == [False]:
        sys.stderr.write(
            "tidepool: this process is the first one from now on. is_first() was false in it before the loop: what the "
            "script made only in the first process there, such as a writer, is missing here\n"
        )
        _named_first.clear()
    _rank = rank


def is_first() -> bool:
    """Return whether this process is rank 0: by its session, by torchrun's variables, or because it is the only one.

    Before its session has begun, the coordinator names the rank that begins the training.
    """
    if _rank is None and "RANK" not in os.environ and (context := rank_context()) is not None:
        return context.launch.engine != "elastic" or _is_named_first(context)
    return _number() == 0


def _is_named_first(context: RankContext) -> bool:
    if not _named_first:
        _named_first.append(is_named_first(context))
    return _named_first[0]


def _number() -> int:
    return int(os.environ.get("RANK", "0")) if _rank is None else _rank
