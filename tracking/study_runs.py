"""A study's run in MLflow, of which the runs of its trials are children: made once, when the study is first seen."""

import json
import logging
from typing import Any

from django.urls import reverse

from jobs.models import Job
from studies.models import Study, Trial
from tracking.access import experiment_name_of
from tracking.models import TrackedStudy
from tracking.new_runs import experiment_of, find_run, make_run, parameters_of_inputs, tags_of
from tracking.upstream import MlflowServer, Refused

__all__ = ["PARENT_TAG", "STUDY_RELATED", "ensure_study_run", "study_run_path", "tags_of_trial"]

logger = logging.getLogger(__name__)

#: Tag by which MLflow's pages show a run below another one.
PARENT_TAG = "mlflow.parentRunId"
_STUDY_TAG = "tidepool.study"
STUDY_RELATED = ("owner", "model__model", "dataset__dataset", "instance_group")


def study_run_path(run: TrackedStudy) -> str:
    """Return the address of the run's page on this site."""
    return f"/mlflow/#/experiments/{run.experiment_id}/runs/{run.run_id}"


def ensure_study_run(server: MlflowServer, study: Study) -> TrackedStudy:
    """Make the study's run in MLflow unless there is one. Raises Away, Refused.

    Needs the relations of STUDY_RELATED. Safe to repeat, like `tracking.runs.ensure_run`.
    """
    known = TrackedStudy.objects.filter(study=study).first()
    if known is not None:
        return known
    user = study.owner.get_username()
    experiment = experiment_of(server, user, experiment_name_of(study.owner, study.model))
    made = find_run(server, user, experiment, _STUDY_TAG, str(study.pk)) or _make(server, user, experiment, study)
    columns = {"run_id": made, "experiment_id": experiment}
    run, _ = TrackedStudy.objects.get_or_create(study=study, defaults=columns)
    if run.run_id != made:  # another process made one at the same moment
        server.post(user, "runs/delete", {"run_id": made})
    return run


def tags_of_trial(server: MlflowServer, job: Job) -> dict[str, str]:
    """Return the tags that make the job's run a child of its study's run; {}: the job is no trial. Raises Away."""
    if job.bundle is None:
        return {}
    related = [f"study__{name}" for name in STUDY_RELATED]
    trial = Trial.objects.filter(job=job).select_related(*related).first()
    if trial is None:  # its study was deleted
        return {}
    try:
        run = ensure_study_run(server, trial.study)
    except Refused as error:
        logger.warning("study=%s has no run in MLflow: %s", trial.study_id, error)
        return {}
    return {PARENT_TAG: run.run_id, "tidepool.trial": str(trial.number)}


def _make(server: MlflowServer, user: str, experiment: str, study: Study) -> str:
    note = f"[Study {study.pk} in Tidepool]({reverse('studies:detail', args=[study.pk])})"
    return make_run(
        server,
        user,
        experiment,
        name=study.name,
        began=study.created_at,
        tags={_STUDY_TAG: str(study.pk), **tags_of(study.owner, study.model, note)},
        parameters=_parameters(study),
    )


def _parameters(study: Study) -> dict[str, Any]:
    """Return the fixed parameters by their names, and the search below `tidepool/`."""
    search = {name: getattr(study, name) for name in ("metric", "goal", "value_of", "sampler", "pruner", "seed")}
    space = {f"space/{name}": json.dumps(given) for name, given in study.space.items()}
    ours = {**search, **space, **parameters_of_inputs(study.model, study.dataset, study.instance_group)}
    return {**{f"tidepool/{name}": value for name, value in ours.items()}, **study.parameters}
