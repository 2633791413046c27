"""The background worker's task of copying studies to a database for Optuna. Its state is in the database.

Only the process that copies loads Optuna's storage. The controller never waits for the copy.
"""

import logging
import threading
import time
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import F, Q, QuerySet
from django.utils import timezone
from tidepool.backoff import Interval

from core.claims import Claim, ClaimLost, Claims
from core.process import take_turns
from studies.models import OptunaCopy, Study
from studies.rows import goal_of, read_number
from studies.space import parse_space

__all__ = ["OptunaCopies", "copied_study", "copy_due", "copy_name", "copy_problem"]

logger = logging.getLogger(__name__)

_TURN_SECONDS = 2.0
#: Pause between copies of one study, as a multiple of the time that a copy takes and at least; and after a failure.
_PAUSE_FACTOR, _PAUSE, _PAUSE_AFTER_FAILURE = 20, timedelta(seconds=5), timedelta(seconds=30)
#: Seconds without work after which the process ends, and gives its memory back.
_IDLE_SECONDS = 30.0
_MAX_PROBLEM = 300
_CLAIMS = Claims(OptunaCopy, duration=timedelta(minutes=5), waiting={"claim": ""}, related=("study",))


def copy_name(study: Study) -> str:
    """Return the study's name in Optuna, where names are unique."""
    return f"{study.name}-{study.pk}"


def copy_problem(study: Study | None = None) -> OptunaCopy | None:
    """Return the copy that has failed for the longest time, of all studies or of one; None: none fails."""
    if not settings.TIDEPOOL_OPTUNA_URL:
        return None
    copies = OptunaCopy.objects.exclude(problem="")
    return (copies if study is None else copies.filter(study=study)).order_by("failing_since", "pk").first()


def copy_due(now: datetime) -> QuerySet[Study]:
    """Return the studies that have changed since they were copied, and whose next copy is due."""
    is_due = Q(optuna_copy__copied_revision__lt=F("revision"), optuna_copy__next_try_at__lte=now)
    return Study.objects.filter(Q(optuna_copy=None) | is_due).order_by("pk")


class OptunaCopies:
    """Copies studies while some have changed. Several processes may run it: each copy is claimed."""

    def __init__(self) -> None:
        self._looking = Interval(_TURN_SECONDS)

    def has_work(self) -> bool:
        return self._looking.is_due(time.monotonic()) and copy_due(timezone.now()).exists()

    def run(self, stop: threading.Event) -> None:
        """Copy until the event is set; sets it once nothing has been due for a while."""
        last_active = time.monotonic()

        def turn() -> bool:
            nonlocal last_active
            due = list(copy_due(timezone.now()).values_list("pk", flat=True))
            if due:
                last_active = time.monotonic()
            elif time.monotonic() - last_active > _IDLE_SECONDS:
                stop.set()
            for study in due:
                copied_study(study, timezone.now())
            return False

        take_turns(stop, turn, pause_seconds=_TURN_SECONDS)


def copied_study(study: int, now: datetime) -> bool:
    """Copy one study; return whether it was. An error is noted and tried again later."""
    try:
        OptunaCopy.objects.get_or_create(study_id=study, defaults={"next_try_at": now})
        claim = _CLAIMS.claim(study, now)
        return claim is not None and _copy(claim, now)
    except ClaimLost as error:
        logger.info("%s", error)
        return False


def _copy(claim: Claim[OptunaCopy], now: datetime) -> bool:
    revision, began = claim.row.study.revision, time.monotonic()
    try:
        _bring(claim.row.study)
    except Exception as error:  # a database of somebody else, behind a driver of its own
        problem = _sentence(error)
        logger.warning("study=%s was not copied to Optuna, it is tried again: %s", claim.row.pk, problem)
        since = claim.row.failing_since or now
        next_try = now + _PAUSE_AFTER_FAILURE
        _CLAIMS.release(claim, problem=problem, failing_since=since, next_try_at=next_try)
        return False
    pause = max(_PAUSE, _PAUSE_FACTOR * timedelta(seconds=time.monotonic() - began))
    done = {"problem": "", "failing_since": None, "next_try_at": now + pause}
    _CLAIMS.release(claim, copied_revision=revision, **done)
    return True


def _bring(study: Study) -> None:
    from studies.optuna_storage import CopiedTrial, bring, open_storage
    from studies.optuna_study import quiet

    columns = ("number", "state", "values", "value", "reported", "created_at", "finished_at", "job_id")
    trials = [
        CopiedTrial(
            number, state, values, value, {at: read_number(seen) for at, seen in reported}, began, ended,
            {"tidepool:training": job} if job else {},
        )
        for number, state, values, value, reported, began, ended, job
        in study.trials.order_by("number").values_list(*columns)
    ]  # fmt: skip
    mark = f"{settings.TIDEPOOL_SITE_URL} {study.pk} {study.created_at.isoformat()}".strip()
    with quiet():
        storage = open_storage(settings.TIDEPOOL_OPTUNA_URL)
        try:
            bring(storage, copy_name(study), mark, goal_of(study), parse_space(study.space), trials)
        finally:
            storage.remove_session()
            storage.engine.dispose()


def _sentence(error: Exception) -> str:
    """Return the first line of the driver's message: it names hosts and files, and no password."""
    cause = getattr(error, "orig", None) or error.__cause__ or error
    text = " ".join(str(getattr(cause, "orig", None) or cause).split("\n")[0].split())
    return (text or type(error).__name__)[:_MAX_PROBLEM]
