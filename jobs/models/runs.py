"""Rows that are written while jobs run: claims, generations, ranks, what ranks leave, and the scheduler's lease."""

from typing import Self

from django.conf import settings
from django.db import models
from django.db.models import Q

from jobs.messages import text_of
from jobs.models.jobs import Job
from jobs.states import GenerationState, RankState, Reason, choices
from models_registry.models import RegisteredModelVersion
from scheduling.plan import PlanReason
from workers.models import Slot

__all__ = [
    "AllocationPoint",
    "Checkpoint",
    "Generation",
    "GpuActivity",
    "Journal",
    "MetricPoint",
    "Rank",
    "SchedulerLease",
    "SlotClaim",
    "SubmissionKey",
    "TrainedVersion",
    "UnstoredEntry",
    "Validation",
]


class SubmissionKey(models.Model):
    """Key that a client sent with a submission, so that the same request makes no second job."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=128)
    #: sha256 of the request.
    digest = models.CharField(max_length=64)
    job = models.OneToOneField(Job, on_delete=models.CASCADE, related_name="submission_key")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["owner", "key"], name="one_job_of_a_submission_key")]


class ClaimQuerySet(models.QuerySet["SlotClaim"]):
    def open(self) -> Self:
        """Claims whose slot is not released yet."""
        return self.filter(released_at__isnull=True)

    def kept(self) -> Self:
        """Open claims that their job has not been told to give back."""
        return self.open().filter(vacating_at__isnull=True)


class SlotClaim(models.Model):
    """A slot held by a job, until its process is gone.

    It is *training* while its process belongs to the generation that trains, and *changing hands* before and after.
    Every page counts by this; `jobs.queries.gpu_status` has the rule.
    """

    slot = models.ForeignKey(Slot, on_delete=models.PROTECT, related_name="claims")
    #: What was used is never forgotten: a job that held a GPU is not deleted.
    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="claims")
    #: What the slot was when it was claimed: another GPU may be put in its place.
    gpu_model = models.CharField(max_length=128, blank=True, default="")
    attempt = models.PositiveIntegerField()
    claimed_at = models.DateTimeField()
    #: Set when the job shall give it back; `vacate_revision` is the host's desired state revision that says so.
    vacating_at = models.DateTimeField(null=True, blank=True)
    vacate_revision = models.PositiveBigIntegerField(null=True, blank=True)
    released_at = models.DateTimeField(null=True, blank=True)
    #: By the clock of the coordinator: when a generation with it began, and when one without it did, or none followed.
    trains_from = models.DateTimeField(null=True, blank=True)
    trained_until = models.DateTimeField(null=True, blank=True)

    objects = ClaimQuerySet.as_manager()

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(
                fields=["slot"], condition=Q(released_at__isnull=True), name="slot_held_by_one_job"
            ),
        ]
        indexes = [
            models.Index(fields=["job"], condition=Q(released_at__isnull=True), name="open_claims_of_job"),
            models.Index(fields=["claimed_at"], name="claims_by_start"),
            models.Index(fields=["released_at"], name="claims_by_end"),
        ]


class GpuActivity(models.Model):
    """Activity of a held GPU in a quarter of an hour, as far as its host told. Kept for two days, in sums for good."""

    claim = models.ForeignKey(SlotClaim, on_delete=models.CASCADE, related_name="activity")
    at = models.DateTimeField()
    busy_ms = models.PositiveIntegerField()
    idle_ms = models.PositiveIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["claim", "at"], name="gpu_activity_once")]
        indexes = [models.Index(fields=["at"], name="gpu_activity_by_time")]


class Generation(models.Model):
    """One membership of a job's process group, as its coordinator reported it."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="generations")
    attempt = models.PositiveIntegerField()
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=16, choices=choices(GenerationState), default=GenerationState.FORMING)
    world_size = models.PositiveIntegerField()
    #: [{"member_id", "rank", "host", "slot"}]
    members = models.JSONField(default=list)
    target_revision = models.PositiveIntegerField(default=0)
    planned_at = models.DateTimeField(null=True)
    active_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["job", "attempt", "number"]
        constraints = [
            models.UniqueConstraint(fields=["job", "attempt", "number"], name="generation_once"),
            models.UniqueConstraint(
                fields=["job"], condition=Q(state=GenerationState.ACTIVE), name="generation_one_active"
            ),
            models.UniqueConstraint(
                fields=["job"], condition=Q(state=GenerationState.FORMING), name="generation_one_forming"
            ),
        ]


class Rank(models.Model):
    """A training process, as its shim and coordinator reported it."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="ranks")
    attempt = models.PositiveIntegerField()
    member_id = models.CharField(max_length=128)
    host = models.CharField(max_length=64)
    slot = models.PositiveIntegerField()
    pid = models.PositiveIntegerField()
    #: Unix seconds, from the host's /proc.
    started_at = models.FloatField()
    state = models.CharField(max_length=16, choices=choices(RankState), default=RankState.LAUNCHING)
    #: Its number in the active generation, None outside of one.
    rank = models.PositiveIntegerField(null=True, blank=True)
    generation = models.PositiveIntegerField(default=0)
    #: Of a fixed-size script: it has formed a process group of torch.distributed.
    grouped = models.BooleanField(default=False)
    #: {"code", "signal", "error"} once it has exited, or {}.
    exit = models.JSONField(default=dict)

    class Meta:
        ordering = ["job", "attempt", "id"]
        constraints = [models.UniqueConstraint(fields=["job", "attempt", "member_id"], name="rank_once")]


class AllocationPoint(models.Model):
    """The world size from a moment on: of the ACTIVE generation at the moment its ranks switched, never the target."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="allocation")
    at = models.DateTimeField()
    slots = models.PositiveIntegerField()
    attempt = models.PositiveIntegerField()
    generation = models.PositiveIntegerField()
    reason_code = models.CharField(max_length=32, choices=choices(Reason, PlanReason))
    reason_params = models.JSONField(default=dict)
    pause_ms = models.FloatField(null=True)

    class Meta:
        ordering = ["job", "at", "id"]
        constraints = [
            models.UniqueConstraint(fields=["job", "attempt", "generation", "slots"], name="allocation_once")
        ]
        indexes = [models.Index(fields=["at"], name="allocation_by_time")]

    @property
    def reason_text(self) -> str:
        return text_of(self.reason_params)


class Journal(models.Model):
    """Position up to which a journal of a job has been stored; what an executor sends again is dropped by it."""

    name = models.CharField(max_length=255, unique=True)
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="journals")
    host = models.CharField(max_length=64)
    number = models.PositiveBigIntegerField(default=0)


class UnstoredEntry(models.Model):
    """An entry of a host's report that raised as it was stored: what it was, and why."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="unstored_entries")
    journal = models.CharField(max_length=255)
    number = models.PositiveBigIntegerField()
    host = models.CharField(max_length=64)
    kind = models.CharField(max_length=64)
    #: As JSON, cut off where it is long: the host's journal has all of it.
    data = models.TextField()
    error = models.CharField(max_length=500)
    traceback = models.TextField(blank=True, default="")
    tries = models.PositiveIntegerField(default=1)
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()
    #: Since when those behind it go on without it; None: it is tried again, or was stored by another try.
    set_aside_at = models.DateTimeField(null=True, blank=True)
    #: Later ones of the job that are not kept, as there are too many.
    more = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ["-id"]
        constraints = [models.UniqueConstraint(fields=["journal", "number"], name="unstored_entry_once")]
        indexes = [models.Index(fields=["-last_at"], name="unstored_entry_by_time")]


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


class CheckpointQuerySet(models.QuerySet["Checkpoint"]):
    def usable(self) -> Self:
        """Checkpoints that an attempt may continue from, the newest first."""
        return self.filter(problem="").order_by("-step", "-attempt")


class Checkpoint(models.Model):
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="checkpoints")
    attempt = models.PositiveIntegerField()
    step = models.PositiveBigIntegerField()
    epoch = models.PositiveIntegerField()
    #: Relative to the job's folder.
    path = models.CharField(max_length=1024)
    size_bytes = models.BigIntegerField()
    sha256 = models.CharField(max_length=64)
    #: Why an attempt could not continue from it; "": nothing is known against it.
    problem = models.CharField(max_length=500, blank=True, default="")
    #: Somebody wants it to stay, however many newer ones there are.
    kept = models.BooleanField(default=False)
    created_at = models.DateTimeField()

    objects = CheckpointQuerySet.as_manager()

    class Meta:
        ordering = ["job", "-step"]
        constraints = [models.UniqueConstraint(fields=["job", "attempt", "step"], name="checkpoint_once")]
        indexes = [models.Index(fields=["-created_at", "-id"], name="checkpoint_by_time")]


class TrainedVersion(models.Model):
    """A version of a model that was made of a checkpoint, whose weights are the version's: the checkpoint stays."""

    version = models.OneToOneField(RegisteredModelVersion, on_delete=models.CASCADE, related_name="trained")
    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.PROTECT, related_name="versions")

    def __str__(self) -> str:
        return str(self.version)


class Validation(models.Model):
    """Measurement of a job that trains nothing: the weights that another one left, on held-out data."""

    class Split(models.TextChoices):
        VALIDATION = "validation"
        TESTING = "testing"

    job = models.OneToOneField(Job, on_delete=models.CASCADE, related_name="validation")
    trained = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="validations")
    #: What was asked for; the result says what the script measured on.
    split = models.CharField(max_length=16, choices=Split, default=Split.VALIDATION)
    #: `jobs.files.validation_runs.parsed_result`; {} until the job has succeeded, and where it left none.
    result = models.JSONField(default=dict)

    class Meta:
        ordering = ["-job_id"]


class SchedulerLease(models.Model):
    """The one row that says who may write plans. Every plan is written with the epoch checked in its transaction."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    epoch = models.PositiveBigIntegerField(default=0)
    holder = models.CharField(max_length=255, blank=True, default="")
    expires_at = models.DateTimeField(null=True)
    #: When the newest plan was carried out, how many there were, and how long they took in all: for /metrics.
    decided_at = models.DateTimeField(null=True)
    cycles = models.PositiveBigIntegerField(default=0)
    cycles_seconds = models.FloatField(default=0)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="scheduler_lease_single_row")]
