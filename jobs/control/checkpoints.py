"""Checkpoint rows: from what coordinators report, and from folders that know more than the database.

A database that was restored from a backup is older than the folders and the hosts, and no number may be used a second
time: an attempt's number names folders, journals and processes, and may be in use on a host at this moment.

Jobs of fixed size, whose script knows nothing of Tidepool, have no rows but a contract: a script that is told to end
(SIGTERM) and whose ranks all exit with 0 has declared that it can be resumed from CHECKPOINT_DIR. From then on each
start finds that folder as the last one left it. A script may declare the same beforehand by a file named `resumable` in
the folder. All others start from nothing, in an empty folder.
"""

import logging
import re
import shutil
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from django.conf import settings
from django.db import connection, transaction
from tidepool.journal import read_journal
from tidepool.protocol import CheckpointPublished, Restored

from core.errors import Conflict
from jobs.control.transition import Why, change, lock_job, record
from jobs.files.job_folder import KEPT, JobFolder, job_folder, link_checkpoint
from jobs.messages import message
from jobs.models import Checkpoint, InstanceGroup, Job, Rank
from jobs.states import WAITING, JobState, RankState, Reason
from models_registry.models import RegisteredModelVersion

__all__ = [
    "carry_checkpoints",
    "catch_up_with_folders",
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
#: In CHECKPOINT_DIR: what is there is enough to go on from.
MARKER = "resumable"


def store(job: Job, written: CheckpointPublished) -> None:
    """Store a published checkpoint; older ones make room."""
    path = job_folder(job).relative(job.run.attempt, written.path)
    if Path(path).parent != Path(f"attempt-{job.run.attempt}/checkpoint"):  # it may be removed one day, as a whole
        raise ValueError(f"{written.path} is no checkpoint of this attempt")
    _store(job, job.run.attempt, path, written)
    _make_room(job)
    _note_newest(job)


def restore(job: Job, restored: Restored) -> None:
    """Store from which checkpoint the attempt continues, and where training stands now."""
    folder = job_folder(job)
    for each in restored.unusable:
        path = folder.relative(job.run.attempt, each.path)
        job.checkpoints.filter(path=path).update(problem=each.why[:500])
    job.metrics.filter(step__gt=restored.step).delete()
    change(job, step=restored.step, epoch=restored.epoch)
    _note_newest(job)
    unusable = [each.why for each in restored.unusable]
    params = message("restored", step=restored.step, from_nothing=not restored.used, unusable=unusable)
    record(job, Why(Reason.RESTORED, params, "executor"))


def _store(job: Job, attempt: int, path: str, written: CheckpointPublished) -> bool:
    """Store a checkpoint; returns whether it was unknown. `path`: relative to the job's folder."""
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
    """The training removes its own oldest ones; those of former attempts are removed here.

    Nobody can continue from one whose files are gone.
    """
    folder, most = job_folder(job).path, job.most_checkpoints
    own = list(job.checkpoints.order_by("-step", "-attempt"))
    too_many = [checkpoint for checkpoint in own if not checkpoint.kept][most:]
    for checkpoint in own:
        path: Path = folder / checkpoint.path
        if checkpoint in too_many and (checkpoint.attempt < job.run.attempt or _is_apart(checkpoint)):
            shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            checkpoint.delete()


def keep(job: Job, checkpoint: Checkpoint) -> None:
    """Exempt a checkpoint of a locked job from the number that is kept. Raises Conflict where its files are gone.

    Its files get a second name in a folder of their own: the training removes its own oldest ones without asking.
    """
    top, name = job_folder(job).path, f"{KEPT}/{checkpoint.path}"
    target = top / name
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(target, ignore_errors=True)  # of a try that was not committed
    try:
        link_checkpoint(top, checkpoint.path, target)
    except OSError as error:
        shutil.rmtree(target, ignore_errors=True)
        raise Conflict("The files of this checkpoint are gone: a newer one has taken its place.") from error
    Checkpoint.objects.filter(pk=checkpoint.pk).update(kept=True, path=name)


def release(job: Job, checkpoint: Checkpoint) -> None:
    """Let a checkpoint of a locked job count among those that are kept again: it is removed if it is one too many."""
    top, former = job_folder(job).path, checkpoint.path.removeprefix(f"{KEPT}/")
    if (top / former).is_dir():
        shutil.rmtree(top / checkpoint.path, ignore_errors=True)
        checkpoint.path = former
    Checkpoint.objects.filter(pk=checkpoint.pk).update(kept=False, path=checkpoint.path)
    _make_room(job)
    _note_newest(job)


def _is_apart(checkpoint: Checkpoint) -> bool:
    """Whether only we remove it: its files are where no training writes."""
    return checkpoint.path.startswith(f"{KEPT}/")


def catch_up_with_folders() -> int:
    """Let jobs that wait begin above every attempt on disk, from the checkpoints there; the same for new jobs.

    Call it while nothing runs. Where the database is the newer one, nothing changes. Returns how many jobs it changed.
    """
    waiting = Job.objects.filter(state__in=WAITING).order_by("pk").values_list("pk", flat=True)
    changed = sum(_catch_up(job_id) for job_id in waiting)
    _skip_numbers_up_to(max(_numbers_of_jobs(), default=0))
    return changed


def look_for_newer_checkpoints(job: Job) -> None:
    """Before a job goes on: where its newest checkpoint has gone, a life that was unknown here wrote newer ones.

    After a restore that life trains until its host is told to end it, and keeps only the last few of what it writes.
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
    """Checkpoints that the coordinator of an attempt published and the database has not heard of."""
    count = 0
    for written in read_journal(folder.attempt(attempt) / "plans.jsonl"):
        if isinstance(written, CheckpointPublished):
            path = folder.relative(attempt, written.path)
            count += (folder.path / path).is_dir() and _store(job, attempt, path, written)
    return count


def _numbers_of_jobs() -> Iterator[int]:
    for user in Path(settings.TIDEPOOL_RESULTS_ROOT).glob("*/batchworkdir"):
        for entry in user.iterdir():
            # A link has a user's name in its own, which may look like any number.
            if (match := _JOB.fullmatch(entry.name)) and not entry.is_symlink():
                yield int(match[1])


def _skip_numbers_up_to(number: int) -> None:
    """The next new job gets a higher one."""
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


def is_resumable(job: Job) -> bool:
    """Return whether the next start continues from what this one, or one before it, left in CHECKPOINT_DIR.

    An attempt whose ranks all exited with 0 and after which the job went on was stopped: else it would be over. Where
    it has saved nothing, the next one begins anew all the same.
    """
    if (_checkpoint_dir(job) / MARKER).exists() or Checkpoint.objects.filter(job=job).exists():
        return True
    if not any(_checkpoint_dir(job).glob("*")):
        return False
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
    old = _checkpoint_dir(job)
    if old.is_dir() and any(old.iterdir()):
        old.rename(job_folder(job).attempt(attempt) / "checkpoint")


def note_saves() -> None:
    """Note when scripts without a session that run have saved last. Call it about twice a minute."""
    running = Job.objects.filter(state=JobState.RUNNING, checkpoints=None).exclude(model__engine=_ELASTIC)
    for job in running.select_related("run", "owner").order_by("pk"):
        saved_at = _saved_at(job)
        if saved_at != job.run.saved_at:
            with transaction.atomic():
                locked = lock_job(job.pk)
                if (locked.state, locked.run.attempt) == (job.state, job.run.attempt):
                    change(locked, saved_at=saved_at)


def _saved_at(job: Job) -> datetime | None:
    """Return when the newest file was written from which a script without a session can go on."""
    if not is_resumable(job):
        return None
    written = [path.lstat().st_mtime for path in _checkpoint_dir(job).rglob("*") if path.name != MARKER]
    return datetime.fromtimestamp(max(written), UTC) if written else None


def has_saved_since(job: Job, unix_seconds: float) -> bool:
    """Return whether anything in CHECKPOINT_DIR was written since then."""
    return any(path.lstat().st_mtime >= unix_seconds for path in _checkpoint_dir(job).rglob("*"))


def stop_words(group: InstanceGroup, *, resumable: bool = False) -> str:
    """Describe the loss by a stop of a fixed-size or single-process training, before it is ever stopped."""
    stoppable = group.preemption and group.policy == InstanceGroup.Policy.PRIORITY
    grace = f"{group.reclaim_grace_seconds} s"
    keeps = "A training of higher priority may stop it" if stoppable else "What it has it keeps"
    if resumable:
        return (
            f"{keeps}; it cannot give back some of its GPUs. Its script can be resumed: stopped or held back, it gets "
            f"SIGTERM and {grace} to save, and finds its CHECKPOINT_DIR later as it is then."
        )
    return (
        f"{keeps}; it cannot give back some of its GPUs. Stopped or held back, its script gets SIGTERM and {grace}: "
        "if it then exits with 0 and has saved in CHECKPOINT_DIR, it finds that later, to continue from. If not, or if "
        "a machine fails, it starts again from nothing but what it left in its working folder."
    )


def _checkpoint_dir(job: Job) -> Path:
    return job_folder(job).attempt(job.run.attempt) / "checkpoint"
