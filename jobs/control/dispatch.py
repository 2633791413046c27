"""Desired states of hosts, built from the database and sent to them. No other module sends them, or other tasks.

A desired state is level-triggered: losing it, doubling it or sending it to a broker that is down changes nothing.
`resend_outstanding` sends it again until the host's reports show that it is carried out. Callers are the control
modules that raise a host's revision, the scheduler's process and `jobs.tasks`.

A wake-up is a hint: without it, the scheduler runs its next cycle a second later. Code that frees slots or queues a
job sends it; the scheduler's process receives it.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, cast

import redis
from django.conf import settings
from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone
from django.utils.crypto import salted_hmac
from redis.client import PubSub
from tidepool.protocol import DesiredJob, LaunchSpec, Member, Sync, seal, to_json

from core.broker import connect
from core.task_messages import task_message
from jobs.control.environment_states import wanted_environments
from jobs.control.user_secrets import SealedForHost, user_secrets_for
from jobs.files.job_folder import INITIAL, TRAIN_DIR, job_folder
from jobs.files.recordings import newest_request
from jobs.files.validation_runs import validation_of
from jobs.models import Job, Journal, SlotClaim
from jobs.options import OPTIONS, option_values
from jobs.states import TRAINING, JobState, Reason
from models_registry.model_settings import settings_in
from workers.host_keys import host_key
from workers.models import Host

__all__ = [
    "PeriodicTask",
    "WakeUps",
    "acknowledge",
    "build_sync",
    "launch_spec",
    "periodic_tasks",
    "register_launch_environment",
    "register_periodic_task",
    "resend_outstanding",
    "secret_of",
    "send_mark",
    "send_sync",
    "wake_scheduler",
]

logger = logging.getLogger(__name__)

WAKE_CHANNEL = "tidepool.wake"
#: Time after a job's end during which its journals are still acknowledged.
_ACKNOWLEDGED_AFTER_END = timedelta(hours=1)
#: States of hosts that read their queue. A LOST or OFFLINE host gets its desired state when it reports again.
_REACHABLE = (Host.State.ONLINE, Host.State.DRAINING)
#: Functions that add variables to the environment of a job's ranks, registered by apps that import this one.
_launch_environments: list[Callable[[Job], dict[str, str]]] = []


def register_launch_environment(variables: Callable[[Job], dict[str, str]]) -> None:
    """Add `variables(job)` to the environment of the ranks of every job. Call it from `AppConfig.ready`."""
    _launch_environments.append(variables)


def send_sync(host: str, acknowledged: Mapping[str, int] | None = None) -> None:
    """Send a host its whole desired state. `acknowledged` adds journals that the database does not have."""
    sync = build_sync(host, acknowledged)
    number, boot = Host.objects.values_list("key_number", "key_boot").get(name=host)
    _send("executor.sync", [_in_envelope(sync, number, boot)], f"host.{host}", f"host={host} revision={sync.revision}")


def _in_envelope(sync: Sync, key_number: int, boot: int) -> dict[str, Any]:
    """Return the message as JSON, signed for a host that has a key, and for that start of its executor."""
    if not key_number:
        return to_json(sync)
    key = host_key(sync.host, key_number)
    return to_json(seal(key, "sync", sync, host=sync.host, boot=boot, number=time.time_ns()))


def acknowledge(answers: Sequence[tuple[Host, Mapping[str, int]]]) -> None:
    """Acknowledge entries of journals to hosts, whose rows say how far they are: journal -> number of the last one.

    The message is a desired state of revision 0, of which executors take nothing but the numbers. An executor that has
    not carried out any revision yet gets its whole desired state instead.
    """
    messages, hosts = [], Host.objects.filter(state__in=_REACHABLE).count() if answers else 0
    for host, numbers in answers:
        if not host.applied_revision:
            send_sync(host.name, numbers)
            continue
        echo, queue = _host_clock(host.reported_at, host.last_report_at), f"host.{host.name}"
        sync = Sync(host.name, 0, time.time(), [], {**numbers}, echo=echo, hosts=hosts)
        values = _in_envelope(sync, host.key_number, host.key_boot)
        messages.append((queue, task_message("executor.sync", [values], queue)))
    if not messages:
        return
    try:
        with connect().pipeline(transaction=False) as pipeline:
            for queue, message in messages:
                pipeline.lpush(queue, message)
            pipeline.execute()
    except (redis.RedisError, OSError) as error:
        logger.warning("%s hosts were not acknowledged what they sent, they send it again: %s", len(messages), error)


@dataclass(frozen=True)
class PeriodicTask:
    """A Celery task without arguments that the leading scheduler sends to the control worker periodically."""

    name: str
    every_seconds: float

    def send(self) -> None:
        _send(self.name, [], settings.CELERY_TASK_DEFAULT_QUEUE, f"the request for {self.name}")


def send_mark(now: datetime) -> None:
    """Send a mark into the queue of reports, see `workers.lateness`."""
    _send("jobs.tasks.note_taken", [now.timestamp()], settings.CELERY_TASK_DEFAULT_QUEUE, "a mark among reports")


_periodic_tasks = [
    PeriodicTask("jobs.tasks.note_saves", every_seconds=30.0),
    PeriodicTask("jobs.tasks.merge_old_gpu_spans", every_seconds=60.0),
    PeriodicTask("jobs.tasks.tidy", every_seconds=3600.0),
]


def register_periodic_task(task: PeriodicTask) -> None:
    """Have the scheduler send a task of an app that imports this one. Call it from `AppConfig.ready`."""
    _periodic_tasks.append(task)


def periodic_tasks() -> Sequence[PeriodicTask]:
    return _periodic_tasks


def _send(task: str, args: list[Any], queue: str, what: str) -> None:
    try:
        connect().lpush(queue, task_message(task, args, queue))
    except (redis.RedisError, OSError) as error:
        logger.warning("%s could not be sent, retrying: %s", what, error)


def resend_outstanding() -> list[str]:
    """Send the desired state again to every host that has not carried it out; returns the hosts' names."""
    behind = Host.objects.filter(state__in=_REACHABLE, applied_revision__lt=F("desired_revision"))
    names = list(behind.values_list("name", flat=True))
    for name in names:
        send_sync(name)
    return names


def build_sync(host: str, acknowledged: Mapping[str, int] | None = None) -> Sync:
    """Build the whole desired state of a host from the database alone."""
    # Read first: a concurrent change has a higher revision and is sent separately.
    revision, reported_at, heard_at = Host.objects.values_list("desired_revision", "reported_at", "last_report_at").get(
        name=host
    )
    held = SlotClaim.objects.open().filter(slot__host__name=host)
    jobs = Job.objects.filter(pk__in=held.values("job")).select_related(
        "run", "owner", "model__model", "dataset", "instance_group", "validation"
    )
    claims: dict[int, list[SlotClaim]] = defaultdict(list)
    for claim in SlotClaim.objects.open().filter(job__in=jobs).select_related("slot__host").order_by("id"):
        claims[claim.job_id].append(claim)
    desired_jobs = [
        _desired_job(job, claims[job.pk], host, user_secrets_for(job, host))
        for job in jobs.order_by("pk")
        if claims[job.pk]
    ]
    recent = Q(job__finished_at__isnull=True) | Q(job__finished_at__gte=timezone.now() - _ACKNOWLEDGED_AFTER_END)
    known = dict(Journal.objects.filter(recent, host=host).values_list("name", "number"))
    return Sync(
        host,
        revision,
        time.time(),
        desired_jobs,
        {**known, **(acknowledged or {})},
        echo=_host_clock(reported_at, heard_at),
        environments=wanted_environments(host),
    )


def _host_clock(reported_at: float, heard_at: datetime | None) -> float | None:
    """Return the time by the host's clock, as far as its newest report tells; None: it has sent none.

    Only the age of the desired state counts, not how late the control plane took the report.
    """
    if not reported_at or heard_at is None:
        return None
    return reported_at + max(0.0, (timezone.now() - heard_at).total_seconds())


def launch_spec(job: Job) -> LaunchSpec:
    """Build the launch spec of the job's current attempt, identical on each call except for memory limits."""
    folder = job_folder(job)
    parameters = {**job.model.parameters, **job.parameters}
    validation = validation_of(job)
    checkpoints = job.checkpoints.usable().filter(attempt__lt=job.run.attempt)
    return LaunchSpec(
        folder=str(folder.attempt(job.run.attempt)),
        code_folder=str(folder.code),
        entry_point=job.model.entry_point,
        arguments=[*_arguments(job, parameters), *job.arguments],
        data_dir=job.dataset.path if job.dataset else "",
        data_folders=job.dataset.picked if job.dataset else [],
        environment=_environment(job),
        compat=list(job.model.compat),
        max_slots=job.run.first_max_slots or job.max_slots,
        checkpoints=[str(folder.path / checkpoint.path) for checkpoint in checkpoints],
        initial_checkpoint=str(folder.initial()) if job.starts_from == Job.StartsFrom.CHECKPOINT else None,
        initial_weights=str(folder.initial()) if job.starts_from == Job.StartsFrom.WEIGHTS else None,
        stuck_seconds=settings.TIDEPOOL_STUCK_SECONDS,
        launch_seconds=settings.TIDEPOOL_LAUNCH_SECONDS,
        engine=cast(Literal["elastic", "fixed", "single"], str(job.engine)),
        validate=cast(Literal["", "validation", "testing"], validation.split if validation else ""),
        settings={**job.model.settings, **settings_in(parameters)},
        **{name: value for name, value in option_values(job).items() if OPTIONS[name].is_launched},
        owner=job.owner.username,
        micro_batch_limits=job.run.micro_batch_limits,
        local_rank_argument=job.model.declared.local_rank_argument,
        lease_seconds=float(settings.TIDEPOOL_LEASE_SECONDS),
    )


def _desired_job(job: Job, claims: list[SlotClaim], host: str, user_secrets: SealedForHost) -> DesiredJob:
    halt = job.state == JobState.PREEMPTING and job.run.halt_until is not None
    stop = job.state not in TRAINING and not halt
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
        lead_number=job.run.lead_number,
        secret=secret_of(job.pk, job.run.attempt) if job.run.sealed else "",
        members=[Member(claim.slot.host.name, claim.slot.index) for claim in (claims if halt else kept)],
        launch=launch_spec(job),
        stop=stop,
        grace_seconds=_grace_seconds(job),
        halt=halt,
        **{name: value for name, value in option_values(job).items() if OPTIONS[name].is_desired},
        log_pattern_revision=job.log_pattern_revision,
        stacks=job.run.stacks_number,
        recording=newest_request(job),
        user_secrets=user_secrets.sealed,
        user_secrets_problem=user_secrets.problem,
        owner_number=job.owner_id,
        least_isolation=job.instance_group.least_isolation,
    )


def _grace_seconds(job: Job) -> float:
    """Return the seconds for which a stopping script may save: those of its group, or what a leaving host has left."""
    grace = float(job.instance_group.reclaim_grace_seconds)
    if job.state == JobState.PREEMPTING and job.reason_code == Reason.HOST_LEAVES:
        return max(grace, float(job.reason_params["seconds"]))
    return grace


def secret_of(job: int, attempt: int) -> str:
    """Return the secret by which an attempt's processes know each other. It is stored nowhere here."""
    digest = salted_hmac("jobs.handshake", f"{job}.{attempt}", secret=settings.SECRET_KEY, algorithm="sha256")
    return digest.hexdigest()


def _environment(job: Job) -> dict[str, str]:
    ours = {name: value for variables in _launch_environments for name, value in variables(job).items()}
    return {**job.environment, **ours}


def _folder_arguments(job: Job) -> dict[str, str]:
    """Return WMLA's `--train_dir` and `--weights`, each only for scripts that declare it."""
    folder = job_folder(job)
    folders = {"train_dir": str(folder.attempt(job.run.attempt) / TRAIN_DIR)}
    if job.starts_from == Job.StartsFrom.WEIGHTS:
        folders["weights"] = str(folder.path / INITIAL)
    return {name: path for name, path in folders.items() if name in job.model.folder_arguments}


def _arguments(job: Job, parameters: Mapping[str, Any]) -> list[str]:
    """Return the script's arguments. Settings of `pth_parameter_mgr` are passed only if the script declares them."""
    declared = job.model.declared
    told = settings_in(parameters) if declared.asks_manager else {}
    given = {name: value for name, value in parameters.items() if name not in told or declared.find(name)}
    return declared.words({**_folder_arguments(job), **given})


# --- wake-ups of the scheduler ---------------------------------------------------------------------------------------


def wake_scheduler() -> None:
    """Wake the scheduler once the caller's transaction is committed."""
    transaction.on_commit(_send_wake_up)


def _send_wake_up() -> None:
    try:
        connect().publish(WAKE_CHANNEL, b"")
    except (redis.RedisError, OSError) as error:
        logger.warning("could not wake the scheduler; its next cycle follows anyway: %s", error)


class WakeUps:
    """Subscription of the scheduler to wake-ups. Connects at the first wait, and again after an error of the broker."""

    def __init__(self) -> None:
        self._subscription: PubSub | None = None

    def wait(self, seconds: float) -> bool:
        """Wait for a wake-up, at most `seconds`, and return whether one came. Several wake-ups count as one."""
        try:
            subscription = self._subscribed()
            woken = subscription.get_message(timeout=seconds) is not None
            while subscription.get_message(timeout=0) is not None:
                woken = True
        except (redis.RedisError, OSError):
            self.close()
            raise
        return woken

    def close(self) -> None:
        if self._subscription is not None:
            with suppress(redis.RedisError, OSError):
                self._subscription.close()
            self._subscription = None

    def _subscribed(self) -> PubSub:
        if self._subscription is None:
            self._subscription = connect().pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
            self._subscription.subscribe(WAKE_CHANNEL)
        return self._subscription
