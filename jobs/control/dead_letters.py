"""Journal entries that cannot be stored: retried a few times, then set aside so that later entries are stored.

If the start or the end of a rank is set aside, the job fails with that reason. Without any other entry (metrics,
checkpoints, profiles, generations) the training continues.
"""

import json
import logging
import traceback
from typing import Any

import redis
from django.db import InterfaceError, OperationalError, transaction
from django.db.models import F, QuerySet
from django.utils import timezone
from tidepool.protocol import JournalEntry

from core.text import storable
from jobs.control.job_end import finish, judge_job
from jobs.control.transition import Why, lock_job, record
from jobs.messages import message
from jobs.models import Job, UnstoredEntry
from jobs.states import HOLDING, JobState, RankState, Reason

__all__ = ["PASSES", "end_job", "has_had_its_tries", "in_words", "set_aside"]

logger = logging.getLogger(__name__)

#: Errors that are not the entry's fault: the database or broker is unavailable, or a row is locked. Retried later.
#: Errors of files are not among them: they concern the folder of one training, and others must not wait for it.
PASSES = (OperationalError, InterfaceError, redis.RedisError, ConnectionError, TimeoutError)
#: Number of tries before an entry is set aside. Executors resend after 5, 10 and 20 s.
_TRIES = 3
#: Largest number of kept entries per job; further ones are only counted.
_MOST_KEPT = 100
_MOST_CHARACTERS = 10_000
_MOST_WORDS = 400
#: Kinds of entries without which the job could wait forever for a rank whose end is not known. The loss of any other
#: kind is harmless: the exits of ranks still decide the job's end.
_DECIDES = frozenset({"rank_started", "rank_exited", "failed", "environment_failed", "secrets_failed", "lost"})


def has_had_its_tries(job_id: int, entry: JournalEntry, host: str, error: Exception) -> bool:
    """Count a failed try of an entry and return whether it was the last one.

    The first try is the last one if another entry of the attempt is set aside already: an error that affects every
    entry would keep the job waiting for hours.
    """
    return _noted(job_id, entry, host, error).tries >= _TRIES or _set_aside_of(job_id, entry).exists()


@transaction.atomic
def set_aside(job: Job, entry: JournalEntry, host: str, error: Exception) -> None:
    """Mark the entry as set aside, and record an event for the attempt's first one. The caller has locked the job."""
    is_first = not _set_aside_of(job.pk, entry).exists()
    row = _noted(job.pk, entry, host, error, tries=0)
    kept = UnstoredEntry.objects.filter(job=job).exclude(set_aside_at=None)
    if kept.count() >= _MOST_KEPT:
        UnstoredEntry.objects.filter(pk=kept.values_list("pk", flat=True)[0]).update(more=F("more") + 1)
        row.delete()
    else:
        UnstoredEntry.objects.filter(pk=row.pk).update(set_aside_at=timezone.now())
    logger.error("job=%s journal=%s number=%s is set aside: %s", job.pk, entry.journal, entry.number, in_words(error))
    if is_first:
        record(job, Why(Reason.REPORT_SET_ASIDE, _told("report_set_aside", entry, host, error), "system"))


def end_job(job_id: int, entry: JournalEntry, host: str, error: Exception) -> None:
    """End the job if the lost entry makes the state of its ranks unknowable; otherwise do nothing.

    The entry belongs to the job's current attempt.
    """
    if entry.kind not in _DECIDES:
        return
    try:
        _end_job(job_id, entry, host, error)
    except PASSES:
        raise
    except Exception:  # the event about the entry is recorded; other jobs continue
        logger.exception("job=%s cannot be ended, although an entry of its journal is set aside", job_id)


def in_words(error: Exception) -> str:
    return str(storable(f"{type(error).__name__}: {error}"))[:_MOST_WORDS]


def _noted(job_id: int, entry: JournalEntry, host: str, error: Exception, tries: int = 1) -> UnstoredEntry:
    """Return the row of an entry that raised `error`, after adding `tries` to its count."""
    now = timezone.now()
    told = {
        "error": in_words(error),
        "traceback": storable("".join(traceback.format_exception(error)))[-_MOST_CHARACTERS:],
        "host": host,
        "last_at": now,
    }
    # Stored as text: the data may contain what JSON columns cannot hold.
    what = {"kind": entry.kind[:64], "data": storable(json.dumps(entry.data))[:_MOST_CHARACTERS]}
    row, is_new = UnstoredEntry.objects.get_or_create(
        journal=entry.journal, number=entry.number, defaults={**told, **what, "job_id": job_id, "first_at": now}
    )
    if not is_new:
        UnstoredEntry.objects.filter(pk=row.pk).update(**told, tries=F("tries") + tries)
        row.refresh_from_db()
    return row


def _set_aside_of(job_id: int, entry: JournalEntry) -> QuerySet[UnstoredEntry]:
    """Return the entries of the same attempt that are set aside."""
    attempt = entry.journal.split(".", 2)[1]
    rows = UnstoredEntry.objects.filter(job=job_id, journal__startswith=f"{job_id}.{attempt}.")
    return rows.exclude(set_aside_at=None)


@transaction.atomic
def _end_job(job_id: int, entry: JournalEntry, host: str, error: Exception) -> None:
    job = lock_job(job_id)
    if job.state not in HOLDING:
        return
    if entry.kind == "rank_exited":
        ranks = job.ranks.filter(attempt=job.run.attempt, member_id=str(entry.data.get("member_id", "")))
        ranks.update(state=RankState.LOST, rank=None)
    if job.state == JobState.CANCELLING:  # the job ends once its slots are empty
        judge_job(job.pk)
        return
    why = Why(Reason.REPORT_SET_ASIDE, _told("report_lost", entry, host, error), "system")
    shown = {"kind": "ReportSetAside", "message": in_words(error), "traceback": ""}
    finish([job], JobState.FAILED, why, error=shown)


def _told(key: str, entry: JournalEntry, host: str, error: Exception) -> dict[str, Any]:
    return message(key, host=host, kind=entry.kind[:64], number=entry.number, error=in_words(error))
