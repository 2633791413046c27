"""Trainings of trials: their submission, and how many of them train at the same time."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django.utils import timezone
from tidepool.trial_parameters import TRIAL_FILE

from core.claims import Claim, ClaimLost
from jobs.actions.source import source_of_json
from jobs.actions.submission import Submission, submit
from jobs.models import Job
from studies.control.changes import next_number
from studies.models import NNI, Study, Trial
from workers.queries import capacity

__all__ = ["arguments_from", "at_once_of", "submission_of", "submit_trial"]

#: File for scripts written for WMLA. A file of the model with this name is kept, but for WMLA's clients.
_CONFIG_FILE = "config.json"
#: Environment variable by which WMLA's libraries know that a script runs as an experiment, with its number.
_SUBID = "SUBID"


def at_once_of(study: Study) -> int:
    """Return the maximum number of submitted trials that are not over.

    Without a limit of the study: as many as there are GPUs, and one that waits, so that no GPU is idle between two
    trials.
    """
    if study.at_once is not None:
        return study.at_once
    size = int(study.options.get("min_slots", 1))
    return max(1, capacity(study.instance_group.resource_group) // size) + 1


def submission_of(study: Study, values: Mapping[str, Any], number: int, seed: int | None = None) -> Submission:
    """Return the submission of a trial with these values."""
    given = Submission(
        name=f"{study.name[:240]} #{number}",
        model=study.model,
        dataset=study.dataset,
        instance_group=study.instance_group.name,
        parameters=arguments_from(study, values),
        arguments=study.arguments,
        tags=(*study.tags, *([f"study-{study.pk}"] if study.pk else [])),
        code_files=_code_files(study, values, number),
        dialect=study.dialect if study.is_for_wmla else "",
        submitted_args=study.asked.get("args", ""),
        bundle=study.pk,
        source=source_of_json(study.source),
        **_options(study, number),
    )
    return given if seed is None else replace(given, seed=seed)


def arguments_from(study: Study, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that reach the script as `--name value`.

    Scripts for WMLA read a file instead, and `asked` may name arguments that carry some of the values, too. Scripts for
    NNI ask for the values of their trial.
    """
    every = {**study.parameters, **values}
    if not study.dialect:
        return every
    if study.dialect == NNI:
        return dict(study.parameters)
    named = study.asked.get("arguments", {})
    return {argument: every[name] for name, argument in named.items() if name in every}


def submit_trial(claim: Claim[Study], trial: Trial) -> Job:
    """Submit the trial's training, and store the trial in the same transaction.

    Raises UserError if the training is refused, and ClaimLost if the study has changed since it was claimed.
    """
    study = claim.row

    def store(job: Job) -> None:
        held = Study.objects.select_for_update().filter(pk=study.pk, claim=claim.token, state=Study.State.RUNNING)
        if not held.exists() or (trial.pk is None and trial.number != next_number(study)):
            raise ClaimLost(f"Study {study.pk} has changed meanwhile.")
        trial.job, trial.state = job, Trial.State.RUNNING
        trial.created_at = trial.created_at or timezone.now()
        trial.save()

    values = trial.values
    return submit(submission_of(study, values, trial.number, trial.job_seed), study.owner, store)


def _options(study: Study, number: int) -> dict[str, Any]:
    options: dict[str, Any] = study.options
    if not study.is_for_wmla:
        return options
    return {**options, "environment": {**options.get("environment", {}), _SUBID: str(number)}}


def _code_files(study: Study, values: Mapping[str, Any], number: int) -> dict[str, str]:
    params = dict(values) if study.dialect == NNI else {**study.parameters, **values}
    told = {"study": study.pk, "name": study.name, "number": number, "params": params}
    files = {TRIAL_FILE: json.dumps(told)}
    if study.is_for_wmla or not (study.model.folder / _CONFIG_FILE).exists():
        files[_CONFIG_FILE] = json.dumps({**study.parameters, **values})
    return files
