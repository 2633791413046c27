"""Models written while jobs run: claims, generations, ranks, metrics, checkpoints, and the scheduler's lease."""

from typing import Self

from django.conf import settings
from django.db import models
from django.db.models import Q

from jobs.messages import text_of
from jobs.models.jobs import Job
from jobs.states import GenerationState, RankState, Reason, choices
from models_registry.models import RegisteredModelVersion
from scheduling.plan import PlanReason
from workers.models import Host, Slot

__all__ = [
    "AllocationPoint",
    "Checkpoint",
    "Generation",
    "GpuActivity",
    "GpuSpans",
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
    """Idempotency key that a client sent with a submission: a repeated request creates no second job."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=128)
    #: sha256 of the request.
    digest = models.CharField(max_length=64)
    job = models.OneToOneField(Job, on_delete=models.CASCADE, related_name="submission_key")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["owner", "key"], name="one_job_of_a_submission_key")]


class ClaimQuerySet(models.QuerySet["SlotClaim"]):
    def open(self) -> Self:
        """Return claims whose slot is not released yet."""
        return self.filter(released_at__isnull=True)

    def kept(self) -> Self:
        """Return open claims that their job has not been told to give back."""
        return self.open().filter(vacating_at__isnull=True)


class SlotClaim(models.Model):
    """A slot held by a job, until its process has ended.

    The claim is *training* while its process belongs to the training generation, and *starting or releasing* before and
    after. All pages use this definition, which `jobs.queries.gpu_status` implements.
    """

    slot = models.ForeignKey(Slot, on_delete=models.PROTECT, related_name="claims")
    # A job that held a GPU cannot be deleted: usage accounting needs it.
    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="claims")
    #: GPU model of the slot at the time of the claim: the GPU may be replaced later.
    gpu_model = models.CharField(max_length=128, blank=True, default="")
    attempt = models.PositiveIntegerField()
    claimed_at = models.DateTimeField()
    #: Time at which the job was told to give the slot back, and the revision of the host's desired state that says so.
    vacating_at = models.DateTimeField(null=True, blank=True)
    vacate_revision = models.PositiveBigIntegerField(null=True, blank=True)
    released_at = models.DateTimeField(null=True, blank=True)
    #: Coordinator's times at which a generation with this slot began, and at which it was superseded or ended.
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
    """Busy and idle time of a held GPU in a quarter of an hour. Rows are kept for two days, their sums for good."""

    claim = models.ForeignKey(SlotClaim, on_delete=models.CASCADE, related_name="activity")
    at = models.DateTimeField()
    busy_ms = models.PositiveIntegerField()
    idle_ms = models.PositiveIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["claim", "at"], name="gpu_activity_once")]
        indexes = [models.Index(fields=["at"], name="gpu_activity_by_time")]


class GpuSpans(models.Model):
    """Utilization and memory of a host's held GPUs in `seconds` from `at` on; `jobs.control.gpu_spans` merges them."""

    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="+")
    at = models.DateTimeField()
    seconds = models.PositiveSmallIntegerField()
    #: [[claim, start and end in Unix milliseconds, mean utilization in percent or null, most bytes in use or null,
    #: [cores, and bytes per second read, written, received and sent, each or null]]]; the last may be missing.
    spans = models.JSONField()

    class Meta:
        indexes = [
            models.Index(fields=["host", "at"], name="gpu_spans_by_host"),
            models.Index(fields=["seconds", "at"], name="gpu_spans_by_age"),
        ]


class Generation(models.Model):
    """A membership of a job's process group, as reported by its coordinator."""

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
    """A training process, as reported by its shim and coordinator."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="ranks")
    attempt = models.PositiveIntegerField()
    member_id = models.CharField(max_length=128)
    host = models.CharField(max_length=64)
    slot = models.PositiveIntegerField()
    pid = models.PositiveIntegerField()
    #: Start time from the host's /proc, in Unix seconds.
    started_at = models.FloatField()
    state = models.CharField(max_length=16, choices=choices(RankState), default=RankState.LAUNCHING)
    #: Rank in the active generation; None: not a member.
    rank = models.PositiveIntegerField(null=True, blank=True)
    generation = models.PositiveIntegerField(default=0)
    #: Fixed-size scripts only: whether the process has formed a process group of torch.distributed.
    grouped = models.BooleanField(default=False)
    #: {"code", "signal", "error"} after the exit, or {}.
    exit = models.JSONField(default=dict)

    class Meta:
        ordering = ["job", "attempt", "id"]
        constraints = [models.UniqueConstraint(fields=["job", "attempt", "member_id"], name="rank_once")]


class AllocationPoint(models.Model):
    """World size from a moment on: size of the ACTIVE generation when its ranks switched to it, never the target."""

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
    """Number of the last stored entry of a job's journal. Entries up to it that an executor sends again are dropped."""

    name = models.CharField(max_length=255, unique=True)
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="journals")
    host = models.CharField(max_length=64)
    number = models.PositiveBigIntegerField(default=0)


class UnstoredEntry(models.Model):
    """A journal entry of a host's report that raised an exception when it was stored."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="unstored_entries")
    journal = models.CharField(max_length=255)
    number = models.PositiveBigIntegerField()
    host = models.CharField(max_length=64)
    kind = models.CharField(max_length=64)
    #: The entry as JSON, truncated. The host's journal has all of it.
    data = models.TextField()
    error = models.CharField(max_length=500)
    traceback = models.TextField(blank=True, default="")
    tries = models.PositiveIntegerField(default=1)
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()
    #: Time since which later entries are stored without this one; None: it is retried, or a retry has stored it.
    set_aside_at = models.DateTimeField(null=True, blank=True)
    #: Number of later failed entries of the job that are not kept because there are too many.
    more = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ["-id"]
        constraints = [models.UniqueConstraint(fields=["journal", "number"], name="unstored_entry_once")]
        indexes = [models.Index(fields=["-last_at"], name="unstored_entry_by_time")]


class MetricPoint(models.Model):
    """Value of a metric after a step, for charts. The authoritative record is `metrics.jsonl` in the job's folder."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="metrics")
    name = models.CharField(max_length=64)
    step = models.PositiveBigIntegerField()
    epoch = models.PositiveIntegerField()
    #: Value after the step; None: not a number, shown as a gap.
    value = models.FloatField(null=True)
    at = models.DateTimeField()
    #: Whether the point is one of those at even distances, which statistics need; see `jobs.control.series`.
    is_even = models.BooleanField(default=True, db_default=True)

    class Meta:
        ordering = ["job", "name", "step"]
        constraints = [models.UniqueConstraint(fields=["job", "name", "step"], name="metric_once_per_step")]


class CheckpointQuerySet(models.QuerySet["Checkpoint"]):
    def usable(self) -> Self:
        """Return checkpoints that an attempt may resume from, the newest first."""
        return self.filter(problem="").order_by("-step", "-attempt")


class Checkpoint(models.Model):
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="checkpoints")
    attempt = models.PositiveIntegerField()
    step = models.PositiveBigIntegerField()
    epoch = models.PositiveIntegerField()
    #: Path relative to the job's folder.
    path = models.CharField(max_length=1024)
    size_bytes = models.BigIntegerField()
    sha256 = models.CharField(max_length=64)
    #: Reason why an attempt cannot resume from the checkpoint; "": no problem is known.
    problem = models.CharField(max_length=500, blank=True, default="")
    #: Whether a user has excluded the checkpoint from the removal of old ones.
    kept = models.BooleanField(default=False)
    created_at = models.DateTimeField()

    objects = CheckpointQuerySet.as_manager()

    class Meta:
        ordering = ["job", "-step"]
        constraints = [models.UniqueConstraint(fields=["job", "attempt", "step"], name="checkpoint_once")]
        indexes = [models.Index(fields=["-created_at", "-id"], name="checkpoint_by_time")]


class TrainedVersion(models.Model):
    """Link from a model version to the checkpoint that its weights come from; protects the checkpoint from deletion."""

    version = models.OneToOneField(RegisteredModelVersion, on_delete=models.CASCADE, related_name="trained")
    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.PROTECT, related_name="versions")

    def __str__(self) -> str:
        return str(self.version)


class Validation(models.Model):
    """A run that evaluates the weights of another job on held-out data and trains nothing."""

    class Split(models.TextChoices):
        VALIDATION = "validation"
        TESTING = "testing"

    job = models.OneToOneField(Job, on_delete=models.CASCADE, related_name="validation")
    trained = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="validations")
    #: Requested split; the result names the split that the script evaluated.
    split = models.CharField(max_length=16, choices=Split, default=Split.VALIDATION)
    #: Fields of `jobs.files.validation_runs.parsed_result`; {} before the job succeeds or if it wrote no result.
    result = models.JSONField(default=dict)

    class Meta:
        ordering = ["-job_id"]


class SchedulerLease(models.Model):
    """The single row that names the leading scheduler. The transaction that writes a plan checks the epoch."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    epoch = models.PositiveBigIntegerField(default=0)
    holder = models.CharField(max_length=255, blank=True, default="")
    expires_at = models.DateTimeField(null=True)
    #: Time of the newest plan, number of plans, and their total duration in seconds, for /metrics.
    decided_at = models.DateTimeField(null=True)
    cycles = models.PositiveBigIntegerField(default=0)
    cycles_seconds = models.FloatField(default=0)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="scheduler_lease_single_row")]
