"""WMLA's names and states of hyperparameter searches and their experiments.

A search is `<user>-hpo-<number of the study, 16 digits>`, unless its client has named it. Notebooks poll while the
state is SUBMITTED or RUNNING, so a search whose last experiments are still being stopped is RUNNING.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from django.contrib.auth.models import User

from core.errors import NotFound
from core.text import LARGEST_ID, is_storable, shown_text
from jobs.models import Job
from jobs.states import WAITING, JobState
from studies.models import Study, Trial
from studies.queries import studies
from wmla.job_names import MAX_LENGTH

__all__ = [
    "EXPERIMENT_WORDS",
    "SEARCH_WORDS",
    "experiment_word",
    "is_name_of_ours",
    "name_of",
    "progress_text",
    "search_word",
    "study_named",
    "time_text",
]

_SUBMITTED, _RUNNING, _STOPPED, _FINISHED, _FAILED, _KILLED = (
    "SUBMITTED", "RUNNING", "STOPPED", "FINISHED", "FAILED", "KILLED",
)  # fmt: skip
#: States that clients filter by. Searches here are never RECOVERPEND.
SEARCH_WORDS = (_SUBMITTED, _RUNNING, _STOPPED, _FINISHED, _FAILED, "RECOVERPEND")
EXPERIMENT_WORDS = (_SUBMITTED, _RUNNING, _FINISHED, _FAILED, _KILLED)
_NAME = re.compile(r".+-hpo-(?P<study>[0-9]{16})", re.DOTALL)
_VALUED = (Trial.State.COMPLETE, Trial.State.PRUNED)
_OPEN = (Trial.State.WAITING, Trial.State.RUNNING)


def name_of(study: Study) -> str:
    """Return the search's hpoName. Needs the study's owner."""
    given: str = study.asked.get("hpoName", "")
    return given or f"{study.owner.get_username()}-hpo-{study.pk:016}"


def is_name_of_ours(name: str) -> bool:
    """Return whether the name has the form of those that the server makes."""
    return bool(_NAME.fullmatch(name))


def study_named(user: User, name: str) -> Study:
    """Find the study that the user may see by its hpoName. Raises NotFound."""
    if len(name) <= MAX_LENGTH and is_storable(name):
        made = _NAME.fullmatch(name)
        rows = studies(user)
        number = min(int(made["study"]), LARGEST_ID) if made else 0
        study = rows.filter(pk=number).first() if made else rows.filter(asked__hpoName=name).first()
        if study is not None and name_of(study) == name:
            return study
    raise NotFound(f"Hyperparameter search {shown_text(name)} not found: list yours with GET /hypersearch.")


def search_word(study: Study, trials: Sequence[Trial]) -> str:
    """Return the state's name. Needs all trials of the study.

    A study pauses by itself if its script or its plug-in fails, or reports no metric: to WMLA's clients, such a search
    has failed.
    """
    has_value = any(trial.state in _VALUED for trial in trials)
    is_training = any(trial.state == Trial.State.RUNNING for trial in trials)
    has_failed = not has_value and any(trial.state == Trial.State.FAILED for trial in trials)
    if study.state == Study.State.PAUSED and (has_failed or study.plugin_failed) and not is_training:
        return _FAILED
    if not study.is_over or is_training:
        return _RUNNING if any(trial.job_id is not None for trial in trials) else _SUBMITTED
    if study.state == Study.State.STOPPED:
        return _STOPPED
    return _FINISHED if has_value else _FAILED


def time_text(moment: datetime | None) -> str | None:
    return None if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def experiment_word(trial: Trial, job: Job) -> str:
    """Return the state's name of a submitted trial."""
    if trial.state == Trial.State.RUNNING:
        return _SUBMITTED if job.state in (*WAITING, JobState.STARTING) else _RUNNING
    if trial.state in _VALUED:
        return _FINISHED
    return _KILLED if job.state == JobState.CANCELLED else _FAILED


def progress_text(study: Study, trials: Sequence[Trial]) -> str:
    """Return the number of experiments that are over and the limit, such as "3/8" or "3/-".

    A trial that repeats a lost one counts as the same experiment, and one that was stopped before it began does not
    count.
    """
    counted = sum(trial.origin != Trial.Origin.REPEAT for trial in trials)
    left = sum(trial.state in _OPEN or (trial.state == Trial.State.FAILED and not trial.job_id) for trial in trials)
    done = max(0, counted - left)
    return f"{done}/{study.trials_wanted or '-'}"
