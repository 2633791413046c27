"""Brings what the database knows of studies to MLflow. A study's revision tells whether anything is to be sent."""

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.db.models import F, Q

from studies.models import Study, Trial
from studies.rows import best_trial
from studies.words import values_text
from tracking.models import TrackedRun, TrackedStudy
from tracking.new_runs import metric_key
from tracking.study_runs import PARENT_TAG, STUDY_RELATED, ensure_study_run
from tracking.upstream import MlflowServer, Refused

__all__ = ["StudyMirror"]

logger = logging.getLogger(__name__)

_STUDIES_PER_TURN = 20
_MISSING = "RESOURCE_DOES_NOT_EXIST"
_STATUS = {
    Study.State.RUNNING: "RUNNING",
    Study.State.PAUSED: "SCHEDULED",
    Study.State.FINISHED: "FINISHED",
    Study.State.STOPPED: "KILLED",
}
_OVER = (Trial.State.COMPLETE, Trial.State.PRUNED, Trial.State.FAILED)


class StudyMirror:
    """Call `turn` every other second. Raises Away while MLflow does not answer: nothing is lost by that."""

    def __init__(self, server: MlflowServer) -> None:
        self._server = server
        #: Studies for which MLflow has refused to make a run.
        self._refused: set[int] = set()

    def turn(self, now: datetime, between_calls: Callable[[], None]) -> bool:
        """Send what has changed of studies; return whether there may be more."""
        is_new = Q(tracked_study=None) & ~Q(pk__in=self._refused)
        has_changed = Q(tracked_study__sent_revision__lt=F("revision"), tracked_study__is_given_up=False)
        rows = Study.objects.filter(is_new | has_changed).select_related(*STUDY_RELATED).order_by("-pk")
        studies = list(rows[:_STUDIES_PER_TURN])
        for study in studies:
            between_calls()
            self._mirror(study, now, between_calls)
        return len(studies) == _STUDIES_PER_TURN

    def _mirror(self, study: Study, now: datetime, between_calls: Callable[[], None]) -> None:
        try:
            run = ensure_study_run(self._server, study)
        except Refused as error:
            logger.warning("study=%s has no run in MLflow: %s", study.pk, error)
            self._refused.add(study.pk)
            return
        try:
            _send(self._server, run, study, now)
            _claim_children(self._server, run, study, between_calls)
        except Refused as error:
            _give_up(run, error)
        else:
            _note(run, sent_revision=study.revision)


def _send(server: MlflowServer, run: TrackedStudy, study: Study, now: datetime) -> None:
    """Send the best value so far, with the number of trials that are over as its step, and the state."""
    user, best = study.owner.get_username(), best_trial(study)
    tags = {"tidepool.state": study.state, "tidepool.reason": study.reason}
    metrics: list[dict[str, Any]] = []
    if best is not None:
        tags |= {"tidepool.best_trial": str(best.number), "tidepool.best_values": values_text(best)[:5000]}
    if best is not None and best.value != run.sent_best:
        step, at = study.trials.filter(state__in=_OVER).count(), best.finished_at or now
        key, moment = metric_key(f"best_{study.metric}"), int(at.timestamp() * 1000)
        metrics = [{"key": key, "value": best.value, "timestamp": moment, "step": step}]
    told = [{"key": key, "value": value} for key, value in tags.items()]
    server.post(user, "runs/log-batch", {"run_id": run.run_id, "tags": told, "metrics": metrics})
    values: dict[str, Any] = {"run_id": run.run_id, "status": _STATUS[Study.State(study.state)]}
    if study.finished_at is not None:
        values["end_time"] = int(study.finished_at.timestamp() * 1000)
    server.post(user, "runs/update", values)
    _note(run, sent_best=best.value if best else None)


def _claim_children(server: MlflowServer, run: TrackedStudy, study: Study, between_calls: Callable[[], None]) -> None:
    """Make runs of trials children of the study's run, those too that were made before it."""
    children = TrackedRun.objects.filter(job__trial__study=study, pk__gt=run.sent_child).order_by("pk")
    for child, trial in list(children.values_list("pk", "job__trial__number")):
        between_calls()
        tags = [{"key": PARENT_TAG, "value": run.run_id}, {"key": "tidepool.trial", "value": str(trial)}]
        try:
            named = TrackedRun.objects.values_list("run_id", flat=True).get(pk=child)
            server.post(study.owner.get_username(), "runs/log-batch", {"run_id": named, "tags": tags})
        except (Refused, TrackedRun.DoesNotExist) as error:  # it was deleted, or is made again, with the tags
            logger.info("job=%s study=%s its run is no child of the study's: %s", child, study.pk, error)
        _note(run, sent_child=child)


def _note(run: TrackedStudy, **columns: Any) -> None:
    """Note that it has arrived."""
    for name, value in columns.items():
        setattr(run, name, value)
    TrackedStudy.objects.filter(pk=run.pk).update(**columns)


def _give_up(run: TrackedStudy, error: Refused) -> None:
    """Have a run that MLflow has lost made again; one that its owner deleted there stays deleted."""
    if error.code != _MISSING:
        logger.warning("study=%s run=%s is not mirrored any more: %s", run.pk, run.run_id, error)
        _note(run, is_given_up=True)
        return
    logger.warning("study=%s MLflow has lost the run %s: it is made again", run.pk, run.run_id)
    TrackedStudy.objects.filter(pk=run.pk).delete()
