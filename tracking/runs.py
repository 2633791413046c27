"""A job's run in MLflow: made once, with what is known of the job when it is submitted."""

from typing import Any

from django.db import transaction
from django.urls import reverse

from jobs.models import Job, JobSource
from jobs.options import OPTIONS
from tracking.access import experiment_name
from tracking.models import TrackedRun
from tracking.new_runs import experiment_of, find_run, make_run, parameters_of_inputs, tags_of
from tracking.study_runs import tags_of_trial
from tracking.upstream import MlflowServer

__all__ = ["ensure_run", "note_own_metrics", "run_path"]

_JOB_TAG = "tidepool.job"
#: Names of metrics that are noted of a script.
_MOST_NAMES = 1000
#: The options that shape the results. The environment is none of them: it may hold what others must not read.
_OPTIONS = [name for name, option in OPTIONS.items() if option.shapes_results]


def run_path(run: TrackedRun) -> str:
    """Return the address of the run's page on this site."""
    return f"/mlflow/#/experiments/{run.experiment_id}/runs/{run.run_id}"


def ensure_run(server: MlflowServer, job: Job) -> TrackedRun:
    """Make the job's run in MLflow unless there is one. Raises Away, Refused.

    Needs the job's owner, model, dataset and group. May be called by several at once, and again after it was cut off: a
    run that was made and not noted is found by its tag. No transaction is open while the server is asked.
    """
    known = TrackedRun.objects.filter(job=job).first()
    if known is not None:
        return known
    user = job.owner.get_username()
    experiment = experiment_of(server, user, experiment_name(job))
    made = find_run(server, user, experiment, _JOB_TAG, str(job.pk)) or _make(server, user, experiment, job)
    run, _ = TrackedRun.objects.get_or_create(job=job, defaults={"run_id": made, "experiment_id": experiment})
    if run.run_id != made:  # somebody else made one at the same moment
        server.post(user, "runs/delete", {"run_id": made})
    return run


def _make(server: MlflowServer, user: str, experiment: str, job: Job) -> str:
    note = f"[Training {job.pk} in Tidepool]({reverse('jobs:detail', args=[job.pk])})"
    return make_run(
        server,
        user,
        experiment,
        name=job.name,
        began=job.submitted_at,
        tags={
            _JOB_TAG: str(job.pk),
            **tags_of(job.owner, job.model, note),
            **tags_of_trial(server, job),
            **_source_tags(job),
        },
        parameters=_parameters(job),
    )


def _source_tags(job: Job) -> dict[str, str]:
    """Return MLflow's own tags of the commit that the code came from."""
    source = JobSource.objects.filter(job=job).only("commit", "branch", "repository").first()
    if source is None or not source.commit:
        return {}
    tags = {
        "mlflow.source.git.commit": source.commit,
        "mlflow.source.git.branch": source.branch,
        "mlflow.source.git.repoURL": source.repository,
    }
    return {key: value for key, value in tags.items() if value}


def _parameters(job: Job) -> dict[str, Any]:
    """Return the script's own by their names, and Tidepool's below `tidepool/`."""
    options = {name: getattr(job, name) for name in _OPTIONS if getattr(job, name) is not None}
    ours = {**parameters_of_inputs(job.model, job.dataset, job.instance_group), **options}
    return {**{f"tidepool/{name}": value for name, value in ours.items()}, **job.told_parameters}


def note_own_metrics(job: int, names: set[str]) -> list[str]:
    """Note that the job's script logs these itself; all that are noted of it."""
    with transaction.atomic():
        run = TrackedRun.objects.select_for_update().filter(job=job).first()
        if run is None:  # MLflow has lost it: the mirror makes it again
            return []
        run.own_metrics = sorted({*run.own_metrics, *names})[:_MOST_NAMES]
        run.save(update_fields=["own_metrics"])
    return list(run.own_metrics)
