"""Jobs of fixed size, whose script knows nothing of Tidepool: what of such a job outlives an attempt.

The contract: a script that is told to end (SIGTERM) and whose ranks all exit with 0 has declared that it can be
resumed from CHECKPOINT_DIR. From then on each start finds that folder as the last one left it. A script may declare
the same beforehand by a file named `resumable` in the folder. All others start from nothing, in an empty folder.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from jobs.files.folder import job_folder
from jobs.models import Checkpoint, InstanceGroup, Job, Rank
from jobs.states import RankState

__all__ = ["MARKER", "carry_checkpoints", "has_saved_since", "is_resumable", "stop_words"]

#: In CHECKPOINT_DIR: what is there is enough to go on from.
MARKER = "resumable"


def is_resumable(job: Job) -> bool:
    """Whether the next start continues from what this one, or one before it, left in CHECKPOINT_DIR.

    An attempt whose ranks all exited with 0 and after which the job went on was stopped: else it would be over.
    """
    if (_checkpoints(job) / MARKER).exists() or Checkpoint.objects.filter(job=job).exists():
        return True
    good: dict[int, list[bool]] = defaultdict(list)
    for attempt, state, seen in Rank.objects.filter(job=job).values_list("attempt", "state", "exit"):
        good[attempt].append(state == RankState.EXITED and seen.get("code") == 0)
    return any(all(ends) for ends in good.values())


def carry_checkpoints(job: Job, attempt: int) -> None:
    """Hand CHECKPOINT_DIR on to the job's new `attempt`, whose folder is made. May be repeated.

    The folder is moved: a process of the former life that is still somewhere cannot write there any more. What a
    session saved stays where it is; the launch names it.
    """
    if job.elastic or not is_resumable(job) or Checkpoint.objects.filter(job=job).exists():
        return
    old = _checkpoints(job)
    if old.is_dir() and any(old.iterdir()):
        old.rename(job_folder(job).attempt(attempt) / "checkpoint")


def has_saved_since(job: Job, unix_seconds: float) -> bool:
    """Whether anything in CHECKPOINT_DIR was written since then."""
    return any(path.lstat().st_mtime >= unix_seconds for path in _checkpoints(job).rglob("*"))


def stop_words(group: InstanceGroup, *, resumable: bool = False) -> str:
    """What a person must know of a fixed-size or single-process training before it is ever stopped."""
    stoppable = group.preemption and group.policy == InstanceGroup.Policy.PRIORITY
    grace = f"{group.reclaim_grace_seconds} s"
    keeps = "A training of higher priority may stop it" if stoppable else "What it has it keeps"
    if resumable:
        return (
            f"{keeps}; it cannot give back some of its GPUs. Its script can be resumed: stopped or held back, it gets "
            f"SIGTERM and {grace} to save, and continues later from its CHECKPOINT_DIR."
        )
    return (
        f"{keeps}; it cannot give back some of its GPUs. Stopped or held back, its script gets SIGTERM and {grace}: "
        "if it then exits with 0, it continues later from its CHECKPOINT_DIR. If not, or if a machine fails, "
        "it starts again from nothing."
    )


def _checkpoints(job: Job) -> Path:
    return job_folder(job).attempt(job.run.attempt) / "checkpoint"
