"""Exits of ranks: how a rank ended, and whether its script (which would fail again) or the machine caused it.

An exception, an exit code, a crash by a processor's signal and a lack of memory count as the script's. A kill from
outside (SIGKILL, SIGTERM, a lost host) counts as the machine's.
"""

import json
import os
import re
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidepool.protocol import RankEnd
from tidepool.refusal import Refusal

__all__ = [
    "CALLS_DIFFER",
    "ERROR_FILE",
    "FATAL_FILE",
    "HOPELESS",
    "JOB_GROUP",
    "KILLED",
    "LAUNCH_TIMEOUT",
    "LOOPS_DIFFER",
    "MODELS_DIFFER",
    "OUT_OF_MEMORY",
    "STALLED",
    "STUCK",
    "ContextLost",
    "describe_end",
    "error_key",
    "error_of",
    "error_words",
    "may_be_starved",
    "memory_limit",
    "oom_kills",
]

#: File in the rank's log folder: why its script ended: `{"kind", "message", "traceback", "step", "rank"}`, and where
#: the batch adapts `"micro_batch": {"kind", "samples"}`: kind of GPU, samples that it computed at once; and where a
#: GPU's memory did not suffice `"memory"`: sentences on what has filled it.
ERROR_FILE = "error.json"
#: File in the rank's log folder: the stacks at a crash.
FATAL_FILE = "fatal"
#: Kind of error of a rank that the kernel killed for lack of memory.
OUT_OF_MEMORY = "OutOfMemory"
#: Beginning of the names of the groups of processes (cgroups) of jobs.
JOB_GROUP = "tidepool."
#: Kind of error of a rank that was killed for a reason that the kernel does not tell.
KILLED = "Killed"
#: Kind of error of a rank that was killed because it held the others up: the machine may be to blame.
STUCK = "Stuck"
#: Kinds of errors of ranks that were killed because their training made no step, because some had ended their loop,
#: because they waited for each other in different calls, and because their models differed at the loop's end.
STALLED, LOOPS_DIFFER, CALLS_DIFFER, MODELS_DIFFER = "Stalled", "LoopsDiffer", "CallsDiffer", "ModelsDiffer"
#: Kind of error of a rank that was killed because its script had not come to its training in time.
LAUNCH_TIMEOUT = "LaunchTimeout"
#: Kind of error of a rank whose script was called with arguments that it does not take.
USAGE_ERROR = "UsageError"
#: Kinds of errors that any restart would repeat: the script was called wrongly, is not valid Python, or asks for what
#: is refused.
HOPELESS = frozenset(
    {USAGE_ERROR, LOOPS_DIFFER, CALLS_DIFFER, MODELS_DIFFER, Refusal.__name__}
    | {"SyntaxError", "IndentationError", "TabError", "ModuleNotFoundError"}
)
#: Kinds of errors of scripts that exited themselves: the end of stderr gives the reason.
_EXITS = frozenset({"SystemExit", "Exit", USAGE_ERROR})
#: argparse and click end with this code, after lines like these.
_USAGE_CODE = 2
_USAGE = re.compile(r"^usage:", re.MULTILINE | re.IGNORECASE)

_CRASHES = {
    signal.SIGSEGV: "segmentation fault",
    signal.SIGBUS: "bus error",
    signal.SIGFPE: "arithmetic error",
    signal.SIGILL: "illegal instruction",
    signal.SIGABRT: "aborted",
}
#: Lines on stderr that no script wrote: Tidepool's, and messages and warnings of torch's C++ code.
_NOT_THE_SCRIPTS = re.compile(r"tidepool: |[-\d]{10} [:,\d]{12} tidepool|(\[rank\d+\]:)?\[[IW]\d{4} ")
#: Line of a stack below which the frames are those that run any script.
_OUR_FRAMES = '\n  File "<frozen runpy>"'
#: Limits of the last words on stderr: bytes read, lines shown, characters of the message.
_LAST_BYTES = 16 * 1024
_LAST_LINES = 20
_MAX_WORDS = 500
#: Longest error in a sentence, in characters; all of its message is above its traceback.
_MAX_SHOWN = 300
_QUOTED_TRACEBACK = "Traceback (most recent call last):"
#: First line of an error at the end of a traceback.
_NAMED_ERROR = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit|Warning|Refusal): ")
#: Colors and other codes of terminals.
_ESCAPES = re.compile(r"\x1b(\[[0-9;:?]*[ -/]*[@-~]|[@-Z\\^_])")
#: Words of torch, multiprocessing and subprocess about a process that was ended by SIGKILL.
_KILLED_CHILD = re.compile(
    r"killed by signal: Killed|exited unexpectedly|terminated abruptly|SIGKILL|"
    r"non-zero exit status (-9|137)\b|with code 137\b"
)
#: Words of CUDA and the driver about a GPU that is faulty or gone.
_HARDWARE = re.compile(r"uncorrectable ECC error|GPU is lost|fallen off the bus|hardware stack error", re.IGNORECASE)
_LOST_WORKER = re.compile(r"DataLoader worker \(pid\S* .*\) exited unexpectedly")
_KILLED_WORKER = re.compile(r"DataLoader worker \(pid \d+\) is killed by signal: .*")
_CGROUP = Path("/sys/fs/cgroup")
#: Numbers and addresses differ between two occurrences of the same error.
_VARYING = re.compile(r"0x[0-9a-fA-F]+|\d+(\.\d+)?")


class ContextLost(RuntimeError):
    """A rank cannot use its GPU any more, because another one was killed."""


def describe_end(
    member_id: str,
    slot: int,
    exit_code: int,
    log_dir: Path,
    *,
    fenced: tuple[str, str] | None = None,
    late_after: float | None = None,
    oom_killed: bool | None = False,
) -> RankEnd:
    """`exit_code` as `os.waitstatus_to_exitcode` gives it. `fenced`: kind of error and sentence, if the coordinator
    had it killed.

    `late_after`: seconds after which it was killed because its script had not started to train.
    `oom_killed`: whether the kernel has killed for lack of memory and no other end explains it; None: unknown.
    """
    code, number = (exit_code, None) if exit_code >= 0 else (None, -exit_code)

    def end(*, by_script: bool, error: dict[str, Any] | None) -> RankEnd:
        return RankEnd(member_id, slot, code, number, by_script, error)

    if fenced is not None:
        return end(by_script=fenced[0] != STUCK, error=_error(*fenced, _stacks(log_dir)))
    if late_after is not None:
        text = (
            f"after {late_after:g} s the script had not come to session.epochs() in the rank {member_id}: killed; "
            f"its log, {log_dir.name}, tells more. A script without a session is registered with the engine single or "
            "fixed; one that needs longer, with a longer TIDEPOOL_LAUNCH_SECONDS"
        )
        return end(by_script=True, error=_error(LAUNCH_TIMEOUT, text, _stacks(log_dir)))
    if number is None:
        error = error_of(log_dir, exit_code)
        if error is not None and oom_killed and may_be_starved(error):
            error = _starved(error)
        return end(by_script=code != 0 and not _is_hardware_error(error), error=error)
    if number in _CRASHES:
        name = signal.Signals(number).name
        text = f"the process was ended by {name}: {_CRASHES[signal.Signals(number)]}"
        return end(by_script=True, error=_error(name, text, _stacks(log_dir)))
    if number == signal.SIGKILL and oom_killed:
        text = f"the kernel killed the process because memory ran out{_limit_words()}"
        return end(by_script=True, error=_error(OUT_OF_MEMORY, text))
    unknown = number == signal.SIGKILL and oom_killed is None
    text = "killed by SIGKILL; whether memory ran out cannot be read on this host"
    return end(by_script=False, error=_error(KILLED, text) if unknown else None)


def may_be_starved(error: Mapping[str, Any] | None) -> bool:
    """Return whether the script failed because one of its processes was killed, as the kernel does without memory."""
    return error is not None and _KILLED_CHILD.search(str(error.get("message", ""))) is not None


def _is_hardware_error(error: Mapping[str, Any] | None) -> bool:
    """Return whether the script failed because its GPU is faulty or another rank was killed: it is no mistake of the
    script's, and another start may be well."""
    if error is None:
        return False
    return error.get("kind") == ContextLost.__name__ or _HARDWARE.search(str(error.get("message", ""))) is not None


def _starved(error: dict[str, Any]) -> dict[str, Any]:
    words = f"the kernel killed a process of the script because memory ran out ({error['kind']}: {error['message']})"
    return {**error, "kind": OUT_OF_MEMORY, "message": words}


def error_words(error: Mapping[str, Any]) -> str:
    """Return the error on one short line: kind and message of an exception, or the last words of a script that exited.

    Of a message that quotes another process's traceback, such as that of a DataLoader's worker, its last error counts.
    """
    kind, message = str(error.get("kind", "")), _cause(str(error.get("message", "")), str(error.get("traceback", "")))
    is_whole = (kind in _EXITS and message) or _NAMED_ERROR.match(message)
    words = message if is_whole else f"{kind}: {message}"
    return words if len(words) <= _MAX_SHOWN else f"{words[: _MAX_SHOWN - 1].rstrip()}…"


def _cause(message: str, traceback: str) -> str:
    # torch names the signal in one of two errors, and that one may be the cause of the other.
    if _LOST_WORKER.search(message) and (signaled := _KILLED_WORKER.search(traceback)):
        return " ".join(signaled[0].split())
    _, quoted, inner = message.rpartition(_QUOTED_TRACEBACK)
    lines = inner.splitlines()
    if quoted and (ends := [place for place, line in enumerate(lines) if _NAMED_ERROR.match(line)]):
        message = "\n".join(lines[ends[-1] :])
    return " ".join(message.split())


def error_key(error: dict[str, Any] | None, code: int | None, number: int | None) -> str:
    """Identify an error: two occurrences of the same one have the same key. `number`: of the signal."""
    shown = error or {}
    return _VARYING.sub("#", f"{shown.get('kind')}: {shown.get('message')}") + f" ({code}, {number})"


def oom_kills(cgroup: str | None = None) -> int | None:
    """Return the number of the kernel's kills for lack of memory, in this process's cgroup or otherwise on the machine.

    None: the kernel does not report it. `cgroup`: the text of /proc/self/cgroup.
    """
    lines = (cgroup if cgroup is not None else _read(Path("/proc/self/cgroup"))).splitlines()
    places: list[Path] = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            places += [_CGROUP / path.lstrip("/") / "memory.events", _CGROUP / "memory.events"]
        elif "memory" in controllers.split(","):
            # A container sees its own cgroup of version 1 at the top, whatever the path is outside.
            inner = [_CGROUP / "memory" / path.lstrip("/"), _CGROUP / "memory"]
            places += [place / "memory.oom_control" for place in inner]
    for place in [*places, Path("/proc/vmstat")]:
        found = re.search(r"^oom_kill (\d+)$", _read(place), re.MULTILINE)
        if found:
            return int(found[1])
    return None


def _limit_words() -> str:
    """Return a phrase about the memory that this host lets the training use; "": it sets no limit of its own."""
    limit = memory_limit(_read(Path("/proc/self/cgroup")))
    return "" if limit is None else f": it may use {limit / 1024**3:.4g} GiB on this host"


def memory_limit(cgroup: str, mount: Path = _CGROUP) -> int | None:
    """Return the limit in bytes of the job's own group of processes; None: it has none. cgroup: see `oom_kills`."""
    for line in cgroup.splitlines():
        _, controllers, path = line.split(":", 2)
        if not Path(path).name.startswith(JOB_GROUP):
            continue
        names = {"": ("", "memory.max"), "memory": ("memory", "memory.limit_in_bytes")}
        for controller in {*controllers.split(",")} & names.keys():
            folder, file = names[controller]
            text = _read(mount / folder / path.lstrip("/") / file).strip()
            return int(text) if text.isdigit() else None
    return None


def error_of(log_dir: Path, code: int) -> dict[str, Any] | None:
    """Return the error of a script that ended with this exit code; None for 0, and for a signal."""
    if code <= 0:
        return None
    try:
        error: dict[str, Any] = json.loads((log_dir / ERROR_FILE).read_text())
    except (FileNotFoundError, ValueError):
        error = _error("Exit", f"the process ended with code {code}")
    error |= {name: _ESCAPES.sub("", str(error.get(name, ""))) for name in ("message", "traceback")}
    return _with_last_words(error, log_dir, code) if error.get("kind") in _EXITS else error


def _with_last_words(error: dict[str, Any], log_dir: Path, code: int) -> dict[str, Any]:
    """Return the error of a script that exited itself, with its last lines on stderr instead of a traceback."""
    lines = _last_lines(log_dir / "stderr")
    if not lines:
        return error
    is_usage = code == _USAGE_CODE and _USAGE.search("\n".join(lines))
    kind = USAGE_ERROR if is_usage else error["kind"]
    return {**error, "kind": kind, "message": lines[-1].strip()[:_MAX_WORDS], "traceback": "\n".join(lines)}


def _last_lines(path: Path) -> list[str]:
    """Return the last lines that are not empty. Of a rewritten line, such as a progress bar, what stood there last."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _LAST_BYTES))
            text = _ESCAPES.sub("", stream.read().decode(errors="replace"))
    except OSError:
        return []
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.rstrip().split("\n")]
    own = [line for line in lines if not _NOT_THE_SCRIPTS.match(line)]
    return "\n".join(own).strip("\n").split("\n")[-_LAST_LINES:] if any(own) else []


def _stacks(log_dir: Path) -> str:
    """Return the stacks written at a crash, the crashed thread first: faulthandler writes it last."""
    text = _read(log_dir / FATAL_FILE).partition("\nExtension modules:")[0]
    blocks = [block.partition(_OUR_FRAMES)[0] for block in text.strip().split("\n\n")]
    return "\n\n".join([blocks[0], *sorted(blocks[1:], key=lambda block: not block.startswith("Current thread"))])


def _error(kind: str, message: str, traceback: str = "") -> dict[str, Any]:
    return {"kind": kind, "message": message, "traceback": traceback}


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # not there, or not ours to read
        return ""
