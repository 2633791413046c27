"""Outcomes of trials whose trainings are over, and their revision when the study compares another metric."""

from datetime import datetime

from django.db import transaction

from jobs.states import JobState
from studies.control.changes import add_trial
from studies.decision import SCRIPT_ERRORS, Ending, ending_of
from studies.measures import final_value
from studies.models import Study, Trial

__all__ = ["MAX_WHY", "judge_again", "settle"]

#: Longest sentence about a trial that is stored.
MAX_WHY = 500


@transaction.atomic
def settle(study: Study, trial: Trial, now: datetime) -> Ending:
    """Store the outcome of a running trial whose training is over."""
    study = Study.objects.select_for_update().get(pk=study.pk)  # its metric may have changed since the turn began
    ending = _ending(study, trial)
    settled = _store(trial, ending, Trial.State.RUNNING, finished_at=now)
    if settled and ending.is_repeated and not study.is_over:
        add_trial(study, trial.values, origin=Trial.Origin.REPEAT, repeats=trial, job_seed=trial.job_seed)
    return ending


def judge_again(study: Study) -> None:
    """Read the study's metric for the trials whose trainings have succeeded, and forget values at rungs.

    The caller has locked the study.
    """
    trained = study.trials.filter(
        state__in=(Trial.State.COMPLETE, Trial.State.FAILED), job__state=JobState.SUCCEEDED
    ).select_related("job__run", "job__owner", "job__model__model")
    for trial in trained:
        _store(trial, _ending(study, trial), trial.state)
    study.trials.filter(state=Trial.State.RUNNING).update(reported=[], rung=0)
    Study.objects.filter(pk=study.pk).update(importance={}, importance_trials=0)


def _ending(study: Study, trial: Trial) -> Ending:
    job = trial.job
    assert job is not None
    return ending_of(
        job.state,
        metric=study.metric,
        value=final_value(job, study) if job.state == JobState.SUCCEEDED else None,
        error=job.error_words or job.reason_text,
        is_script_error=job.state == JobState.FAILED and job.reason_code in SCRIPT_ERRORS,
        is_repeat=trial.origin == Trial.Origin.REPEAT,
    )


def _store(trial: Trial, ending: Ending, before: str, **columns: datetime) -> int:
    """Store the outcome unless the trial's state has changed since; return how many rows have changed."""
    return Trial.objects.filter(pk=trial.pk, state=before).update(
        state=Trial.State.FAILED if ending.value is None else Trial.State.COMPLETE,
        value=ending.value,
        why=ending.why[:MAX_WHY],
        is_script_error=ending.is_script_error,
        **columns,
    )
