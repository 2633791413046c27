"""Checkpoint rows, written from coordinators' reports and from job folders that are newer than the database.

A database restored from a backup is older than the folders and the hosts. Numbers must not be reused: an attempt's
number names folders, journals and processes, and may be in use on a host at this moment.

Jobs of fixed size whose script does not use Tidepool have a contract instead of rows: a script that is told to end
(SIGTERM) and whose ranks all exit with 0 has declared that it can be resumed from CHECKPOINT_DIR. From then on, each
start gets the folder as the previous attempt left it. A script can declare the same in advance by creating a file
named `resumable` in the folder. Lightning, the Trainer of Transformers and Accelerate record what they save themselves
(`tidepool.own_checkpoints`): such a training continues, too. All other scripts start over, in an empty folder.
"""

import logging
import re
import shutil
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from tidepool.journal import read_journal
from tidepool.own_checkpoints import ACCELERATE, OwnCheckpoint, complete_checkpoints, saves_in
from tidepool.protocol import CheckpointPublished, Restored
from tidepool.safe_open import remove_below, times_below

from core.errors import Conflict
from jobs.control.transition import Why, change, lock_job, record
from jobs.files.job_folder import CHECKPOINT_GONE, KEPT, JobFolder, job_folder, link_checkpoint
from jobs.messages import message
from jobs.models import Checkpoint, InstanceGroup, Job, Rank
from jobs.states import WAITING, JobState, RankState, Reason
from models_registry.models import RegisteredModelVersion
from models_registry.script_declarations import Continues

__all__ = [
    "carry_checkpoints",
    "catch_up_with_folders",
    "continuation",
    "has_saved_since",
    "is_resumable",
    "keep",
    "look_for_newer_checkpoints",
    "note_saves",
    "release",
    "restore",
    "stop_words",
    "store",
]

logger = logging.getLogger(__name__)

_ELASTIC = RegisteredModelVersion.Engine.ELASTIC
_ATTEMPT = re.compile(r"attempt-(\d{1,9})")
_JOB = re.compile(r"(\d{1,15})(\..*)?")
#: File in CHECKPOINT_DIR by which a script declares that it can be resumed from there.
MARKER = "resumable"


def store(job: Job, written: CheckpointPublished) -> None:
    """Store a published checkpoint and remove checkpoints beyond the number to keep."""
    path = _place_of(job, job.run.attempt, written)
    _store(job, job.run.attempt, path, written)
    _make_room(job)
    _note_newest(job)


def _place_of(job: Job, attempt: int, written: CheckpointPublished) -> str:
    """Return the path of a checkpoint relative to the job's folder. Raises ValueError if it is none of the attempt."""
    path = job_folder(job).relative(attempt, written.path)
    if Path(path).parent != Path(f"attempt-{attempt}/checkpoint"):  # the folder may be removed later
        raise ValueError(f"{written.path} is no checkpoint of this attempt")
    return path


def restore(job: Job, restored: Restored) -> None:
    """Store the checkpoint that the attempt resumed from, and reset the job's progress to it."""
    folder = job_folder(job)
    for each in restored.unusable:
        path = folder.relative(job.run.attempt, each.path)
        job.checkpoints.filter(path=path).update(problem=each.why[:500])
    job.metrics.filter(step__gt=restored.step).delete()
    # Rows of steps before stay thinned; without any, the curves start anew.
    change(job, step=restored.step, epoch=restored.epoch, series=job.run.series if restored.step else {})
    _note_newest(job)
    unusable = [each.why for each in restored.unusable]
    params = message("restored", step=restored.step, from_nothing=not restored.used, unusable=unusable)
    record(job, Why(Reason.RESTORED, params, "executor"))


def _store(job: Job, attempt: int, path: str, written: CheckpointPublished) -> bool:
    """Store a checkpoint and return whether it was unknown. `path`: relative to the job's folder."""
    columns = {name: getattr(written, name) for name in ("epoch", "size_bytes", "sha256")}
    at = datetime.fromtimestamp(written.at, UTC)
    _, is_new = job.checkpoints.get_or_create(
        attempt=attempt, step=written.step, defaults={**columns, "path": path, "created_at": at}
    )
    return is_new


def _note_newest(job: Job) -> None:
    newest = job.checkpoints.usable().first()
    change(job, saved_at=newest.created_at if newest else None)


def _make_room(job: Job) -> None:
    """Remove the oldest checkpoints of former attempts, and the rows of checkpoints whose files are gone.

    The training process removes the oldest ones of its own attempt.
    """
    folder, most = job_folder(job).path, job.most_checkpoints
    own = list(job.checkpoints.order_by("-step", "-attempt"))
    too_many = [checkpoint for checkpoint in own if not checkpoint.kept][most:]
    for checkpoint in own:
        path: Path = folder / checkpoint.path
        if checkpoint in too_many and (checkpoint.attempt < job.run.attempt or _is_apart(checkpoint)):
            remove_below(folder, Path(checkpoint.path).parts)
        if not path.exists():
            checkpoint.delete()


def keep(job: Job, checkpoint: Checkpoint) -> None:
    """Exempt a checkpoint of a locked job from the removal of old ones. Raises Conflict if its files are gone.

    The files are linked into a separate folder, because the training process removes its oldest checkpoints itself.
    """
    top, name = job_folder(job).path, f"{KEPT}/{checkpoint.path}"
    target = top / name
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(target, ignore_errors=True)  # left by a transaction that was rolled back
    try:
        link_checkpoint(top, checkpoint.path, target)
    except OSError as error:
        shutil.rmtree(target, ignore_errors=True)
        raise Conflict(CHECKPOINT_GONE) from error
    Checkpoint.objects.filter(pk=checkpoint.pk).update(kept=True, path=name)


def release(job: Job, checkpoint: Checkpoint) -> None:
    """Subject a checkpoint of a locked job to the removal of old ones again, which may remove it at once."""
    top, former = job_folder(job).path, checkpoint.path.removeprefix(f"{KEPT}/")
    if (top / former).is_dir():
        remove_below(top, Path(checkpoint.path).parts)
        checkpoint.path = former
    Checkpoint.objects.filter(pk=checkpoint.pk).update(kept=False, path=checkpoint.path)
    _make_room(job)
    _note_newest(job)


def _is_apart(checkpoint: Checkpoint) -> bool:
    """Return whether the checkpoint's files are outside the attempt's folder, where only the control plane removes."""
    return checkpoint.path.startswith(f"{KEPT}/")


def catch_up_with_folders() -> int:
    """Set the attempt and checkpoints of waiting jobs, and the next job number, from what is on disk.

    Call it while nothing runs. A job whose row is newer than its folder does not change. Returns the number of changes.
    """
    waiting = Job.objects.filter(state__in=WAITING).order_by("pk").values_list("pk", flat=True)
    changed = sum(_catch_up(job_id) for job_id in waiting)
    _skip_numbers_up_to(max(_numbers_of_jobs(), default=0))
    return changed


def look_for_newer_checkpoints(job: Job) -> None:
    """Find newer checkpoints in the folder of a job that starts again, if its newest known checkpoint is gone.

    After a restore of the database, an unknown attempt may train until its host is told to end it. Such an attempt
    keeps only its last few checkpoints.
    """
    folder = job_folder(job)
    newest = job.checkpoints.filter(kept=False).order_by("-step", "-attempt").first()
    if newest is None or (folder.path / newest.path).is_dir():
        return
    for attempt in sorted(_attempts(folder)):
        _recover(job, folder, attempt)
    for checkpoint in job.checkpoints.all():
        if not (folder.path / checkpoint.path).is_dir():
            checkpoint.delete()
    _note_newest(job)


@transaction.atomic
def _catch_up(job_id: int) -> bool:
    job = lock_job(job_id)
    folder = job_folder(job)
    attempts = sorted(_attempts(folder))
    found = sum(_recover(job, folder, number) for number in attempts)
    newest = max([job.run.attempt, *attempts])
    is_behind = newest > job.run.attempt
    if is_behind:
        logger.warning("job=%s attempt=%s: its folder knows of %s", job.pk, job.run.attempt, newest)
        change(job, attempt=newest)
    if found:
        _note_newest(job)
    return is_behind or found > 0


def _attempts(folder: JobFolder) -> Iterator[int]:
    if folder.path.is_dir():
        for entry in folder.path.iterdir():
            if match := _ATTEMPT.fullmatch(entry.name):
                yield int(match[1])


def _recover(job: Job, folder: JobFolder, attempt: int) -> int:
    """Store the published checkpoints of an attempt that the database lacks, and return their number."""
    count = 0
    for written in read_journal(folder.attempt(attempt) / "plans.jsonl"):
        if isinstance(written, CheckpointPublished):
            try:
                path = _place_of(job, attempt, written)
            except ValueError as error:  # its script has written it
                logger.warning("job=%s attempt=%s: %s", job.pk, attempt, error)
                continue
            count += (folder.path / path).is_dir() and _store(job, attempt, path, written)
    return count


def _numbers_of_jobs() -> Iterator[int]:
    for user in Path(settings.TIDEPOOL_RESULTS_ROOT).glob("*/batchworkdir"):
        for entry in user.iterdir():
            # The name of a link contains a user's name, which may look like a number.
            if (match := _JOB.fullmatch(entry.name)) and not entry.is_symlink():
                yield int(match[1])


def _skip_numbers_up_to(number: int) -> None:
    """Make the database assign a higher number to the next new job."""
    table = Job._meta.db_table
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute(
                "INSERT INTO sqlite_sequence (name, seq) SELECT %s, 0 "
                "WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = %s)",
                [table, table],
            )
            cursor.execute("UPDATE sqlite_sequence SET seq = %s WHERE name = %s AND seq < %s", [number, table, number])
            return
        cursor.execute("SELECT pg_get_serial_sequence(%s, 'id')", [table])
        [sequence] = cursor.fetchone()
        cursor.execute(f"SELECT setval(%s, %s) FROM {sequence} WHERE last_value < %s", [sequence, number, number])  # noqa: S608


# --- jobs of fixed size ---------------------------------------------------------------------------------------------


def newest_of_library(job: Job) -> OwnCheckpoint | None:
    """Return the newest checkpoint that a library has saved and the next start continues from; None if there is none.

    Lightning and the Trainer of Transformers continue by themselves, and Accelerate where the script loads its state.
    """
    saved = [] if job.elastic else complete_checkpoints(job_folder(job).path)
    loads = job.model.declared.continues == "load_state"
    return next((each for each in reversed(saved) if loads or each.library != ACCELERATE), None)


def continuation(job: Job) -> dict[str, Any]:
    """Return the params of a sentence about where the next start continues."""
    newest = newest_of_library(job)
    return {"resumable": is_resumable(job)} | (
        {} if newest is None else {"library": newest.library, "library_step": newest.step}
    )


def is_resumable(job: Job) -> bool:
    """Return whether the next start resumes from what this attempt or one before it has saved.

    A library has saved a checkpoint; or the script has, in CHECKPOINT_DIR. If all ranks of an attempt exited with 0 and
    the job is not finished, the attempt was stopped on request. An attempt that saved nothing is not resumed.
    """
    if (_checkpoint_dir(job) / MARKER).exists() or Checkpoint.objects.filter(job=job).exists():
        return True
    if newest_of_library(job) is not None:
        return True
    if not any(_checkpoint_dir(job).glob("*")):
        return False
    good: dict[int, list[bool]] = defaultdict(list)
    for attempt, state, seen in Rank.objects.filter(job=job).values_list("attempt", "state", "exit"):
        good[attempt].append(state == RankState.EXITED and seen.get("code") == 0)
    return any(all(ends) for ends in good.values())


def carry_checkpoints(job: Job, attempt: int) -> None:
    """Move CHECKPOINT_DIR to the job's new `attempt`, whose folder exists. Idempotent.

    A move, not a copy: a leftover process of the former attempt can no longer write there. Checkpoints of a session
    stay in place; the launch spec names them.
    """
    if job.elastic or not is_resumable(job) or Checkpoint.objects.filter(job=job).exists():
        return
    old = _checkpoint_dir(job)
    if old.is_dir() and any(old.iterdir()):
        old.rename(job_folder(job).attempt(attempt) / "checkpoint")


def note_saves() -> None:
    """Update the time of the last save of running scripts without a session. Call it about twice a minute."""
    running = Job.objects.filter(state=JobState.RUNNING, checkpoints=None).exclude(model__engine=_ELASTIC)
    for job in running.select_related("run", "owner").order_by("pk"):
        saved_at = _saved_at(job)
        if saved_at != job.run.saved_at:
            with transaction.atomic():
                locked = lock_job(job.pk)
                if (locked.state, locked.run.attempt) == (job.state, job.run.attempt):
                    change(locked, saved_at=saved_at)


def _saved_at(job: Job) -> datetime | None:
    """Return the time of the newest file from which a script without a session can resume."""
    if not is_resumable(job):
        return None
    written = [at for name, at in times_below(_checkpoint_dir(job)) if name != MARKER]
    if newest := newest_of_library(job):
        with suppress(FileNotFoundError):
            written = [newest.path.lstat().st_mtime]
    # A script may give its files any time.
    return datetime.fromtimestamp(max(0.0, min(max(written), time.time())), UTC) if written else None


def has_saved_since(job: Job, unix_seconds: float) -> bool:
    """Return whether any file in CHECKPOINT_DIR was written since then, or a library has saved in this attempt."""
    return saves_in(job_folder(job).path, job.run.attempt) or any(
        at >= unix_seconds for _, at in times_below(_checkpoint_dir(job))
    )


def stop_words(group: InstanceGroup, *, resumable: bool = False, continues: Continues = "") -> str:
    """Describe what a stop of a fixed-size or single-process training loses, before it is ever stopped.

    continues: declaration of the script.
    """
    stoppable = group.preemption and group.policy == InstanceGroup.Policy.PRIORITY
    may_stop = "A training of higher priority may stop it. " if stoppable else ""
    begins = f"{may_stop}It cannot shrink. If stopped, it has {group.reclaim_grace_seconds} s to save"
    if continues:
        return f"{begins}. {_CONTINUES[continues]}"
    if resumable:
        return f"{begins}, and continues from its CHECKPOINT_DIR."
    return (
        f"{begins} to CHECKPOINT_DIR; otherwise it starts again; what it left in its working folder stays, and many "
        "scripts continue from it."
    )


_BY_ITSELF = (
    "Later, or after a host has failed, it continues from the newest checkpoint that {library} has saved, as if the "
    "script had given {argument}; steps after that are repeated. Without a checkpoint, it starts from the beginning: "
    "{library} saves {often}, unless the script says otherwise."
)
_CONTINUES: dict[Continues, str] = {
    "trainer": _BY_ITSELF.format(
        library="the Trainer", argument="resume_from_checkpoint", often="every 500 steps, with the optimizer"
    ),
    "lightning": _BY_ITSELF.format(library="Lightning", argument="ckpt_path", often="at the end of each epoch"),
    "load_state": (
        "Later, or after a host has failed, its script runs from the top: it continues from the newest state that "
        "Accelerate has saved if it loads that with load_state(). Its working folder is kept, and half-written states "
        "are removed."
    ),
    "anew": (
        "Later, or after a host has failed, it starts from the beginning: with Accelerate, the loop is the "
        "script's, and this script never calls load_state(). Its working folder is kept."
    ),
}


def _checkpoint_dir(job: Job) -> Path:
    return job_folder(job).attempt(job.run.attempt) / "checkpoint"
