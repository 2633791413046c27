"""The work: jobs, what happened to them, and what they hold. What must never happen is a constraint here."""

from __future__ import annotations

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q

from datasets.models import DatasetVersion
from jobs.states import TERMINAL, GenerationState, JobState, RankState, Reason
from models_registry.models import RegisteredModelVersion
from workers.models import ResourceGroup, Slot

__all__ = [
    "AllocationPoint",
    "Checkpoint",
    "Generation",
    "InstanceGroup",
    "Job",
    "JobEvent",
    "Journal",
    "MetricPoint",
    "Rank",
    "SchedulerLease",
    "SlotClaim",
    "Topic",
]


def _choices(enum: type) -> list[tuple[str, str]]:
    return [(member.value, member.value) for member in enum]  # type: ignore[attr-defined]


class InstanceGroup(models.Model):
    """A tenant: which slots its jobs may use and the policy that divides them."""

    class Policy(models.TextChoices):
        FIFO = "fifo"
        PRIORITY = "priority"
        FAIRSHARE = "fairshare"

    name = models.CharField(max_length=64, unique=True)
    resource_group = models.ForeignKey(ResourceGroup, on_delete=models.PROTECT, related_name="instance_groups")
    policy = models.CharField(max_length=16, choices=Policy, default=Policy.FAIRSHARE)
    preemption = models.BooleanField(default=False)
    reclaim_grace_seconds = models.PositiveIntegerField(default=10)
    default_priority = models.PositiveIntegerField(default=5000)
    #: GPUs that it owns (None: no quota) and its part of what is left over. Decided upon from the fourth round on.
    quota = models.PositiveIntegerField(null=True, blank=True)
    weight = models.PositiveIntegerField(default=1)
    #: Recorded; they take effect only under isolation.
    execution_user = models.CharField(max_length=64, blank=True, default="")
    deployment_directory = models.CharField(max_length=4096, blank=True, default="")
    #: Who may submit here. Empty: every user.
    members = models.ManyToManyField(settings.AUTH_USER_MODEL, blank=True, related_name="instance_groups")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Job(models.Model):
    """One training asked for. Its state changes only through jobs.actions."""

    class Exactness(models.TextChoices):
        SUM = "sum"
        BITWISE = "bitwise"

    class StartsFrom(models.TextChoices):
        NOTHING = "nothing"
        WEIGHTS = "weights"
        CHECKPOINT = "checkpoint"

    name = models.CharField(max_length=255)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="jobs")
    model = models.ForeignKey(RegisteredModelVersion, on_delete=models.PROTECT, related_name="jobs")
    dataset = models.ForeignKey(DatasetVersion, on_delete=models.PROTECT, related_name="jobs")
    instance_group = models.ForeignKey(InstanceGroup, on_delete=models.PROTECT, related_name="jobs")

    state = models.CharField(max_length=16, choices=_choices(JobState), default=JobState.PENDING)
    min_slots = models.PositiveIntegerField(default=1)
    max_slots = models.PositiveIntegerField()
    priority = models.PositiveIntegerField(default=5000, validators=[MinValueValidator(1), MaxValueValidator(10000)])
    parameters = models.JSONField(default=dict)
    exactness = models.CharField(max_length=16, choices=Exactness, default=Exactness.SUM)
    #: Parts that each step is computed in, where it is BITWISE: fixed, because the results depend on it.
    virtual_ranks = models.PositiveIntegerField(null=True, blank=True)
    effective_batch_size = models.PositiveIntegerField(null=True, blank=True)
    seed = models.PositiveBigIntegerField(default=0)
    #: Most seconds between two checkpoints, 0 for none; None: the script decides.
    checkpoint_seconds = models.PositiveIntegerField(null=True, blank=True)
    #: How many of them are kept; None: the script decides.
    checkpoints_kept = models.PositiveIntegerField(null=True, blank=True)
    #: What its first incarnation begins with; the files are linked into its folder, see jobs/actions/beginning.py.
    starts_from = models.CharField(max_length=16, choices=StartsFrom, default=StartsFrom.NOTHING)
    #: Whose weights it begins with, and the checkpoint that they are from if one was named; or which it continues.
    initial_job = models.ForeignKey(
        "Job", null=True, blank=True, on_delete=models.SET_NULL, related_name="weights_taken_by"
    )
    initial_checkpoint = models.ForeignKey(
        "Checkpoint", null=True, blank=True, on_delete=models.SET_NULL, related_name="continued_by"
    )

    #: Life number; +1 at each start from nothing or from a checkpoint. 0: never started.
    incarnation = models.PositiveIntegerField(default=0)
    #: Raised with each change of the set of slots that it shall hold.
    target_revision = models.PositiveIntegerField(default=0)
    #: How many slots it shall have, by the latest plan.
    target_slots = models.PositiveIntegerField(default=0)
    #: World size now, as its ranks reported; 0 unless it trains.
    slots = models.PositiveIntegerField(default=0)
    #: Active generation within the incarnation; 0: none yet.
    generation = models.PositiveIntegerField(default=0)
    #: `max_slots` at the first start: the effective batch size follows it for good. 0: never started.
    first_max_slots = models.PositiveIntegerField(default=0)
    #: Host that runs the coordinator; it changes only once the job holds no slot there any more.
    lead_host = models.CharField(max_length=64, blank=True, default="")
    #: The incarnation whose training is complete with its final weights written. 0: none.
    completed_incarnation = models.PositiveIntegerField(default=0)
    #: Incarnations that were lost in a row without a completed step.
    fruitless_starts = models.PositiveIntegerField(default=0)
    #: While PREEMPTING: until when it may stop by itself, after a step and with a checkpoint. None: it is ended.
    halt_until = models.DateTimeField(null=True, blank=True)
    #: `jobs.outcome.Failure` of the newest incarnation that an error of the script ended, or {}.
    failure = models.JSONField(default=dict)
    #: What its coordinator gave an incarnation up for, with the number of that, or {}.
    given_up = models.JSONField(default=dict)
    #: What the owner wants once its slots are empty: PENDING or SUSPENDED (only while PREEMPTING).
    after_stop = models.CharField(max_length=16, blank=True, default="")

    step = models.PositiveBigIntegerField(default=0)
    epoch = models.PositiveIntegerField(default=0)
    #: 0..1, None while unknown.
    progress = models.FloatField(null=True, blank=True)
    #: Name -> last value, e.g. {"loss": 0.03, "accuracy": 97.2}. Percent for accuracies.
    final_metrics = models.JSONField(default=dict)

    #: Why it has what it has: code, params and sentence of its line in the latest plan, or of its last event.
    reason_code = models.CharField(max_length=32, choices=_choices(Reason), default=Reason.SUBMITTED)
    reason_params = models.JSONField(default=dict)
    reason_text = models.TextField(default="")
    #: {"kind", "message", "traceback"} of what ended it, maybe "tried": a sentence about its attempts. Or {}.
    error = models.JSONField(default=dict)

    submitted_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["state", "-id"], name="job_by_state"),
            models.Index(fields=["owner", "-id"], name="job_by_owner"),
        ]
        constraints = [
            models.CheckConstraint(
                condition=Q(min_slots__gte=1) & Q(max_slots__gte=F("min_slots")), name="job_slots_in_order"
            ),
            models.CheckConstraint(condition=Q(priority__gte=1) & Q(priority__lte=10000), name="job_priority_range"),
            models.CheckConstraint(
                condition=Q(state__in=sorted(TERMINAL), finished_at__isnull=False)
                | (~Q(state__in=sorted(TERMINAL)) & Q(finished_at__isnull=True)),
                name="job_finished_iff_terminal",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.pk})"

    @property
    def elastic(self) -> bool:
        """Else its ranks are a gang: they begin and end together, and their number never changes."""
        return self.model.engine == RegisteredModelVersion.Engine.ELASTIC


class JobEvent(models.Model):
    """What happened to a job, append-only; its state equals the fold of its events."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="events")
    seq = models.PositiveIntegerField()
    #: Equal where the state did not change.
    old = models.CharField(max_length=16, blank=True)
    new = models.CharField(max_length=16)
    reason = models.CharField(max_length=32, choices=_choices(Reason))
    #: The sentence shown to people, and what it was made of.
    text = models.TextField()
    detail = models.JSONField(default=dict)
    #: User name, or "scheduler", "executor", "system".
    actor = models.CharField(max_length=150)
    at = models.DateTimeField()

    class Meta:
        ordering = ["job", "seq"]
        constraints = [models.UniqueConstraint(fields=["job", "seq"], name="job_event_once")]


class Generation(models.Model):
    """One membership of a job's process group, as its coordinator reported it."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="generations")
    incarnation = models.PositiveIntegerField()
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=16, choices=_choices(GenerationState), default=GenerationState.FORMING)
    world_size = models.PositiveIntegerField()
    #: [{"wid", "rank", "host", "slot"}]
    members = models.JSONField(default=list)
    target_revision = models.PositiveIntegerField(default=0)
    planned_at = models.DateTimeField(null=True)
    active_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["job", "incarnation", "number"]
        constraints = [
            models.UniqueConstraint(fields=["job", "incarnation", "number"], name="generation_once"),
            models.UniqueConstraint(
                fields=["job"], condition=Q(state=GenerationState.ACTIVE), name="generation_one_active"
            ),
            models.UniqueConstraint(
                fields=["job"], condition=Q(state=GenerationState.FORMING), name="generation_one_forming"
            ),
        ]


class SlotClaim(models.Model):
    """A slot held by a job, until its process is gone."""

    slot = models.ForeignKey(Slot, on_delete=models.PROTECT, related_name="claims")
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="claims")
    incarnation = models.PositiveIntegerField()
    claimed_at = models.DateTimeField()
    #: Set when the job shall give it back; `vacate_revision` is the host's wish revision that says so.
    vacating_at = models.DateTimeField(null=True, blank=True)
    vacate_revision = models.PositiveBigIntegerField(null=True, blank=True)
    released_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(
                fields=["slot"], condition=Q(released_at__isnull=True), name="slot_held_by_one_job"
            ),
        ]
        indexes = [
            models.Index(fields=["job"], condition=Q(released_at__isnull=True), name="open_claims_of_job"),
        ]


class Rank(models.Model):
    """A training process, as its keeper and coordinator reported it."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="ranks")
    incarnation = models.PositiveIntegerField()
    wid = models.CharField(max_length=128)
    host = models.CharField(max_length=64)
    slot = models.PositiveIntegerField()
    pid = models.PositiveIntegerField()
    #: Unix seconds, from the host's /proc.
    started_at = models.FloatField()
    state = models.CharField(max_length=16, choices=_choices(RankState), default=RankState.LAUNCHING)
    #: Its number in the active generation, None outside of one.
    rank = models.PositiveIntegerField(null=True, blank=True)
    generation = models.PositiveIntegerField(default=0)
    #: {"code", "signal", "error"} once it has exited, or {}.
    exit = models.JSONField(default=dict)

    class Meta:
        ordering = ["job", "incarnation", "id"]
        constraints = [models.UniqueConstraint(fields=["job", "incarnation", "wid"], name="rank_once")]


class AllocationPoint(models.Model):
    """The world size from a moment on: of the ACTIVE generation at the moment its ranks switched, never the target."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="allocation")
    at = models.DateTimeField()
    slots = models.PositiveIntegerField()
    incarnation = models.PositiveIntegerField()
    generation = models.PositiveIntegerField()
    reason_code = models.CharField(max_length=32, choices=_choices(Reason))
    reason_text = models.TextField(default="")
    pause_ms = models.FloatField(null=True)

    class Meta:
        ordering = ["job", "at", "id"]
        constraints = [
            models.UniqueConstraint(fields=["job", "incarnation", "generation", "slots"], name="allocation_once")
        ]


class Checkpoint(models.Model):
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="checkpoints")
    incarnation = models.PositiveIntegerField()
    step = models.PositiveBigIntegerField()
    epoch = models.PositiveIntegerField()
    #: Relative to the job's folder.
    path = models.CharField(max_length=1024)
    size_bytes = models.BigIntegerField()
    sha256 = models.CharField(max_length=64)
    #: Why an incarnation could not continue from it; "": nothing is known against it.
    problem = models.CharField(max_length=500, blank=True, default="")
    created_at = models.DateTimeField()

    class Meta:
        ordering = ["job", "-step"]
        constraints = [models.UniqueConstraint(fields=["job", "incarnation", "step"], name="checkpoint_once")]


class MetricPoint(models.Model):
    """A metric's value after a step. `metrics.jsonl` in the job's folder is the truth; this is for charts."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="metrics")
    name = models.CharField(max_length=64)
    step = models.PositiveBigIntegerField()
    epoch = models.PositiveIntegerField()
    #: None: not a number; drawn as a gap.
    value = models.FloatField(null=True)
    at = models.DateTimeField()

    class Meta:
        ordering = ["job", "name", "step"]
        constraints = [models.UniqueConstraint(fields=["job", "name", "step"], name="metric_once_per_step")]


class Journal(models.Model):
    """How far a journal of a job has been stored; what an executor sends again is dropped by it."""

    name = models.CharField(max_length=255, unique=True)
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="journals")
    host = models.CharField(max_length=64)
    number = models.PositiveBigIntegerField(default=0)


class SchedulerLease(models.Model):
    """The one row that says who may write plans. Every plan is written with the epoch checked in its transaction."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    epoch = models.PositiveBigIntegerField(default=0)
    holder = models.CharField(max_length=255, blank=True, default="")
    expires_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="scheduler_lease_single_row")]


class Topic(models.Model):
    """`seq` of a live topic, raised in the transaction whose change it announces."""

    name = models.CharField(max_length=64, primary_key=True)
    seq = models.PositiveBigIntegerField(default=0)
