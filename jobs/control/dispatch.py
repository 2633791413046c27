"""Desired states of hosts, built from the database and sent to them. No other module sends Celery tasks.

A desired state is level-triggered. Losing one, doubling one or sending one to a broker that is down changes nothing:
`resend_outstanding` sends it again until the host's reports show that it was carried out. Called by the control modules
that raise a host's revision, by the scheduler's process and by `jobs.tasks`.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Literal, cast

from celery import current_app
from django.conf import settings
from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone
from kombu.exceptions import OperationalError
from tidepool.protocol import DesiredJob, LaunchSpec, Member, Sync, to_json

from jobs.files.folder import INITIAL, TRAIN_DIR, job_folder
from jobs.files.validation_runs import validation_of
from jobs.models import Job, Journal, SlotClaim
from jobs.options import OPTIONS, option_values
from jobs.queries.jobs import usable_checkpoints
from jobs.states import JobState
from models_registry.settings import settings_in
from workers.models import Host

__all__ = [
    "EXPIRES_SECONDS",
    "announce_desired",
    "build_sync",
    "launch_spec",
    "register_launch_environment",
    "resend_outstanding",
    "send_roll_up",
    "send_sync",
]

logger = logging.getLogger(__name__)

EXPIRES_SECONDS = 30
#: Journals of a job that has ended are still acknowledged for this long.
_ACKNOWLEDGED_AFTER_END = timedelta(hours=1)
#: Only these have ranks; the processes of all others shall end.
_TRAINING = frozenset({JobState.STARTING, JobState.RUNNING})
#: A LOST or OFFLINE host gets its desired state when it reports: nobody would read its queue.
_REACHABLE = (Host.State.ONLINE, Host.State.DRAINING)
#: Each adds variables to the environment of a job's ranks. Apps above this one register theirs when they are loaded.
_launch_environments: list[Callable[[Job], dict[str, str]]] = []


def register_launch_environment(variables: Callable[[Job], dict[str, str]]) -> None:
    """Have `variables(job)` added to the environment of the ranks of every job. Call it from `AppConfig.ready`."""
    _launch_environments.append(variables)


def announce_desired(host: str) -> None:
    """Send the host's desired state as soon as the caller's transaction is committed."""
    transaction.on_commit(partial(send_sync, host))


def send_sync(host: str, acknowledged: Mapping[str, int] | None = None) -> None:
    """Tell a host everything. `acknowledged` adds journals that the database does not know."""
    sync = build_sync(host, acknowledged)
    try:
        _send("executor.sync", [to_json(sync)], f"host.{host}")
    except (OperationalError, OSError) as error:
        logger.warning("host=%s revision=%s was not sent, it is said again: %s", host, sync.revision, error)


def send_roll_up() -> None:
    """Have the control worker add up the usage of what is over."""
    try:
        _send("jobs.tasks.roll_up_usage", [], settings.CELERY_TASK_DEFAULT_QUEUE)
    except (OperationalError, OSError) as error:
        logger.warning("usage is not added up yet, it is asked for again: %s", error)


def _send(task: str, args: list[Any], queue: str) -> None:
    current_app.send_task(task, args=args, queue=queue, expires=EXPIRES_SECONDS, ignore_result=True, retry=False)


def resend_outstanding() -> list[str]:
    """Say it again to every host that has not carried out its desired state; returns their names."""
    behind = Host.objects.filter(state__in=_REACHABLE, applied_revision__lt=F("desired_revision"))
    names = list(behind.values_list("name", flat=True))
    for name in names:
        send_sync(name)
    return names


def build_sync(host: str, acknowledged: Mapping[str, int] | None = None) -> Sync:
    """The whole desired state for a host, from the database alone."""
    # Read first: a change that comes meanwhile has a higher revision and is sent for itself.
    revision = Host.objects.values_list("desired_revision", flat=True).get(name=host)
    held = SlotClaim.objects.filter(released_at__isnull=True, slot__host__name=host)
    jobs = Job.objects.filter(pk__in=held.values("job")).select_related(
        "run", "owner", "model__model", "dataset", "instance_group", "validation"
    )
    claims: dict[int, list[SlotClaim]] = defaultdict(list)
    open_claims = SlotClaim.objects.filter(job__in=jobs, released_at__isnull=True).select_related("slot__host")
    for claim in open_claims.order_by("id"):
        claims[claim.job_id].append(claim)
    desired_jobs = [_desired_job(job, claims[job.pk], host) for job in jobs.order_by("pk") if claims[job.pk]]
    known = _acknowledged(host)
    return Sync(host, revision, time.time(), desired_jobs, {**known, **(acknowledged or {})})


def launch_spec(job: Job) -> LaunchSpec:
    """How to run the job's script in its present attempt; the same whenever it is asked for."""
    folder = job_folder(job)
    parameters = {**job.model.parameters, **job.parameters}
    validation = validation_of(job)
    return LaunchSpec(
        folder=str(folder.attempt(job.run.attempt)),
        code_folder=str(folder.code),
        entry_point=job.model.entry_point,
        arguments=[*_arguments({**_folder_arguments(job), **parameters}), *job.arguments],
        data_dir=job.dataset.path,
        environment={name: value for variables in _launch_environments for name, value in variables(job).items()},
        compat=list(job.model.compat),
        max_slots=job.run.first_max_slots or job.max_slots,
        checkpoints=[str(folder.path / checkpoint.path) for checkpoint in usable_checkpoints(job)],
        initial_checkpoint=str(folder.initial()) if job.starts_from == Job.StartsFrom.CHECKPOINT else None,
        initial_weights=str(folder.initial()) if job.starts_from == Job.StartsFrom.WEIGHTS else None,
        stuck_seconds=settings.TIDEPOOL_STUCK_SECONDS,
        launch_seconds=settings.TIDEPOOL_LAUNCH_SECONDS,
        engine=cast(Literal["elastic", "fixed", "single"], str(job.model.engine)),
        validate=cast(Literal["", "validation", "testing"], validation.split if validation else ""),
        settings={**job.model.settings, **settings_in(parameters)},
        **{name: value for name, value in option_values(job).items() if OPTIONS[name].is_launched},
        owner=job.owner.username,
    )


def _desired_job(job: Job, claims: list[SlotClaim], host: str) -> DesiredJob:
    halt = job.state == JobState.PREEMPTING and job.run.halt_until is not None
    stop = job.state not in _TRAINING and not halt
    here = [claim for claim in claims if claim.slot.host.name == host]
    kept = [] if stop else [claim for claim in claims if claim.vacating_at is None]
    wanted = sorted(claim.slot.index for claim in kept if claim.slot.host.name == host)
    return DesiredJob(
        job=job.pk,
        attempt=job.run.attempt,
        target_revision=job.run.target_revision,
        wanted=wanted,
        vacating=sorted({claim.slot.index for claim in here} - set(wanted)),
        lead=job.run.lead_host == host,
        members=[Member(claim.slot.host.name, claim.slot.index) for claim in (claims if halt else kept)],
        launch=launch_spec(job),
        stop=stop,
        grace_seconds=float(job.instance_group.reclaim_grace_seconds),
        halt=halt,
    )


def _folder_arguments(job: Job) -> dict[str, str]:
    """WMLA's `--train_dir` and `--weights`, each for a script that declares it."""
    folder = job_folder(job)
    folders = {"train_dir": str(folder.attempt(job.run.attempt) / TRAIN_DIR)}
    if job.starts_from == Job.StartsFrom.WEIGHTS:
        folders["weights"] = str(folder.path / INITIAL)
    return {name: path for name, path in folders.items() if name in job.model.folder_arguments}


def _arguments(parameters: Mapping[str, Any]) -> list[str]:
    return [word for name, value in parameters.items() for word in (f"--{name}", _argument(value))]


def _argument(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _acknowledged(host: str) -> dict[str, int]:
    recent = Q(job__finished_at__isnull=True) | Q(job__finished_at__gte=timezone.now() - _ACKNOWLEDGED_AFTER_END)
    return dict(Journal.objects.filter(recent, host=host).values_list("name", "number"))
