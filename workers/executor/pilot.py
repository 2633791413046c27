"""A host for the time of a batch job: joins, tells when it will be gone, and ends when no training wants it.

`python -m workers.executor.pilot --url https://gpus.example.org --token-file token` in a batch script of Slurm, or of
another batch system with `--until`. Arguments that are not the pilot's own are for `workers.executor.join`.
"""

import argparse
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pynvml
from tidepool import procfs

from workers.executor.config import host_mark
from workers.executor.notice import moment_in

__all__ = [
    "Batch",
    "PilotError",
    "batch_in",
    "command_of",
    "refuse_part_of_node",
    "seconds_of",
    "variables_for",
    "without_notice",
]

_EVERY_SECONDS: Final = 2.0
#: Seconds for which a host that leaves is offered no more GPUs before its executor ends.
_LEAVING_SECONDS: Final = 20.0
_TIME: Final = re.compile(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)")
_NOTICE: Final = "notice"
_ANSWER_SECONDS: Final = 30.0


class PilotError(RuntimeError):
    """No pilot can run here; the sentence says what to do."""


@dataclass(frozen=True)
class Batch:
    """A job of the batch system, as far as a pilot needs it."""

    #: Name for the host, unique for each job and node; "": the machine's.
    host: str
    #: Unix seconds at which the job ends.
    until: float
    #: Number of GPUs of this node that the job has; None: the batch system does not say.
    gpus: int | None


def batch_in(environment: Mapping[str, str], now: float, time_left: Callable[[str], str], until: str = "") -> Batch:
    """Return what the job has. Raises PilotError.

    time_left: returns what Slurm says of a job's remaining time, by the job's number. until: the job's end as people
    write it, where the batch system is not Slurm.
    """
    job, node = environment.get("SLURM_JOB_ID", ""), environment.get("SLURM_NODEID", "0")
    if not job and not until:
        raise PilotError("this is no job of Slurm: start the pilot by sbatch, or give --until with the job's end")
    if until:
        moment = moment_in(until, now)
        if moment is None:
            raise PilotError(f"--until must be Unix seconds, an ISO 8601 time or +seconds, not {until!r}")
    else:
        left = seconds_of(time_left(job))
        if left is None:
            raise PilotError("this job has no wall time: give sbatch --time, as trainings have to know when it ends")
        moment = now + left
    if moment <= now:
        raise PilotError("the job's end is over: check the clock, or what --until says")
    several = int(environment.get("SLURM_JOB_NUM_NODES") or "1") > 1
    name = f"slurm-{job}-{node}" if several else f"slurm-{job}"
    return Batch(name if job else "", moment, _gpus(environment))


def seconds_of(text: str) -> float | None:
    """Return the seconds of a time that Slurm writes as `days-hours:minutes:seconds`; None: it is none."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def refuse_part_of_node(batch: Batch, visible: int) -> None:
    """Raise PilotError unless the job has all GPUs that its processes see. visible: number of those."""
    if batch.gpus is not None and batch.gpus != visible:
        raise PilotError(
            f"the job has {batch.gpus} of {visible} GPUs that its processes see, and a host offers all that it sees: "
            "request whole nodes (sbatch --exclusive), or let Slurm hide the others (ConstrainDevices=yes)"
        )


def command_of(host: str, home: Path, given: Sequence[str]) -> list[str]:
    """Return the command that joins. given: further arguments for it."""
    return [sys.executable, "-m", "workers.executor.join", "--name", host, "--home", str(home), *given]


def variables_for(batch: Batch, folder: Path) -> dict[str, str]:
    """Return the variables of the executor. folder: on this machine's own disk, for the time of the job."""
    return {
        "TIDEPOOL_RUN": str(folder / "run"),
        "TIDEPOOL_LEAVING_AT": f"{batch.until:.0f}",
        "TIDEPOOL_NOTICE_FILE": str(folder / _NOTICE),
    }


def without_notice(folder: Path) -> Path:
    """Make the pilot's folder, without the notice that a former pilot in it left: a requeued job keeps its number."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / _NOTICE).unlink(missing_ok=True)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(prog="workers.executor.pilot", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--until", default="", help="end of the job: Unix seconds, ISO 8601 or +seconds (Slurm says it)"
    )
    parser.add_argument(
        "--idle-minutes", type=float, default=10.0, help="minutes without a training after which it ends"
    )
    parser.add_argument("--folder", type=Path, help="folder on this machine's disk (default: tidepool-<job> in TMPDIR)")
    parser.add_argument("--name", default="", help="name of the host (default: slurm-<job>)")
    parser.add_argument("--home", type=Path, default=Path.home() / ".tidepool", help="the pool's folder")
    options, given = parser.parse_known_args()
    try:
        sys.exit(_run(options, given))
    except PilotError as error:
        sys.exit(f"pilot: {error}.")


def _run(options: argparse.Namespace, given: Sequence[str]) -> int:
    batch = batch_in(os.environ, time.time(), _time_left, options.until)
    if not any(word.startswith("--virtual-slots") for word in given):
        refuse_part_of_node(batch, _visible_gpus())
    host, home = options.name or batch.host or socket.gethostname().partition(".")[0], options.home.resolve()
    folder = without_notice(options.folder or Path(tempfile.gettempdir(), f"tidepool-{host}"))
    executor = subprocess.Popen(command_of(host, home, given), env=os.environ | variables_for(batch, folder))
    for number in (signal.SIGTERM, signal.SIGINT):  # the batch system may tell this process alone
        signal.signal(number, lambda number, _: executor.send_signal(number))
    return _watch(executor, host_mark(home, host), folder / _NOTICE, options.idle_minutes * 60)


def _watch(executor: subprocess.Popen[bytes], mark: str, notice: Path, idle_seconds: float) -> int:
    """Wait until the executor ends, and end it when it has had no training for so long. Returns its exit code.

    mark: of the host's trainings.
    """
    idle_since = time.monotonic()
    while executor.poll() is None:
        time.sleep(_EVERY_SECONDS)
        if procfs.marked(mark):
            idle_since = time.monotonic()
        elif time.monotonic() - idle_since > idle_seconds:
            sys.stdout.write(f"pilot: no training for {idle_seconds / 60:g} minutes: this host leaves.\n")
            sys.stdout.flush()
            _leave(executor, notice)
    return executor.returncode


def _leave(executor: subprocess.Popen[bytes], notice: Path) -> None:
    """Take the host out of service, so that nothing starts there any more, and then end its executor."""
    notice.write_text(f"+{_LEAVING_SECONDS:.0f}")
    end = time.monotonic() + _LEAVING_SECONDS
    while executor.poll() is None and time.monotonic() < end:
        time.sleep(_EVERY_SECONDS)
    executor.terminate()
    executor.wait()


def _time_left(job: str) -> str:
    command = ["squeue", "--noheader", "--jobs", job, "--format", "%L"]
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=_ANSWER_SECONDS).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise PilotError(f"Slurm does not say when this job ends ({error}): give --until") from None


def _visible_gpus() -> int:
    try:
        pynvml.nvmlInit()
        return int(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError as error:
        raise PilotError(f"NVIDIA's driver does not answer ({error}): request a node with GPUs") from None


def _gpus(environment: Mapping[str, str]) -> int | None:
    text = environment.get("SLURM_GPUS_ON_NODE", "")
    return int(text) if text.isdecimal() else None


if __name__ == "__main__":
    main()
