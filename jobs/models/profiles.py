"""Speed measurements of trainings, kept over all of a job's attempts."""

from django.db import models
from django.db.models import F, Q

from jobs.models.jobs import Job
from scheduling.policies.kind_ratios import LARGEST_RATIO

__all__ = ["JobProfile", "KindSpeedRatio", "ThroughputPoint", "TimeByCause"]


class ThroughputPoint(models.Model):
    """Latest step durations of one shape on one GPU model: a `tidepool.goodput.model.Point`."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="throughput")
    gpu_model = models.CharField(max_length=128)
    hosts = models.PositiveIntegerField()
    ranks = models.PositiveIntegerField()
    #: Samples in a rank's micro-batch.
    micro_batch = models.PositiveIntegerField()
    compute_seconds = models.FloatField()
    step_seconds = models.FloatField()
    #: Number of measured steps.
    steps = models.PositiveIntegerField()
    at = models.DateTimeField()

    class Meta:
        ordering = ["job", "gpu_model", "ranks", "hosts", "micro_batch"]
        constraints = [
            models.UniqueConstraint(
                fields=["job", "gpu_model", "hosts", "ranks", "micro_batch"], name="throughput_once_per_shape"
            ),
            models.CheckConstraint(condition=Q(hosts__gte=1, ranks__gte=F("hosts")), name="throughput_ranks_on_hosts"),
            models.CheckConstraint(
                condition=Q(compute_seconds__gt=0, step_seconds__gt=0), name="throughput_takes_time"
            ),
        ]


class JobProfile(models.Model):
    """Speed model of a job, refitted whenever one of its points is reported. Input of the scheduler."""

    job = models.OneToOneField(Job, on_delete=models.CASCADE, related_name="profile")
    #: Current samples per step, over all ranks.
    batch_size = models.PositiveIntegerField()
    #: Largest micro-batch of a rank, in samples; 0: a rank computes its share of a step as one micro-batch.
    most_micro_batch = models.PositiveIntegerField(default=0)
    #: GPU model -> largest micro-batch of a rank reported there, in samples.
    micro_batches = models.JSONField(default=dict)
    #: GPU model -> fields of `tidepool.goodput.model.ThroughputParameters`. GPU models without a fit are missing.
    parameters = models.JSONField(default=dict)
    #: Fields of the last reported `tidepool.protocol.AdaptedBatch`; None: the batch size is fixed.
    adapted = models.JSONField(null=True)
    #: Mean progress of a step, in steps at the submitted batch size.
    worth = models.FloatField(default=1.0)
    #: Largest number of ranks that was measured, and the number of measured points.
    largest_ranks = models.PositiveIntegerField(default=1)
    points = models.PositiveIntegerField(default=0)
    #: Seconds that the ranks pause at a resize; None: no resize has been measured.
    pause_seconds = models.FloatField(null=True)
    #: Seconds from the claim of a GPU until its rank trains; None: none has been measured.
    start_seconds = models.FloatField(null=True)
    #: Incremented with each change.
    revision = models.PositiveIntegerField(default=0)
    at = models.DateTimeField()


class TimeByCause(models.Model):
    """Time of a job's ranks by cause, over all attempts, as its coordinators have added it up.

    Lists of seconds are in the order of `tidepool.protocol.SPENT_PARTS`.
    """

    job = models.OneToOneField(Job, on_delete=models.CASCADE, related_name="time_by_cause")
    #: `<attempt>/<member id>` -> {"seconds", "steps", "caused", "sums", "last_in", "workers", "signs"}, see
    #: `tidepool.protocol.RankTime`. The newest ranks only.
    ranks = models.JSONField(default=dict)
    #: Seconds of the ranks that `ranks` lacks, added up; []: it lacks none.
    former = models.JSONField(default=list)
    #: Sums over all ranks at several times, the oldest first: {"at" in Unix seconds, "step", "seconds"}, and where
    #: ranks compute on GPUs "memory": {"host"} and `tidepool.protocol.GpuMemory` of the fullest one.
    points = models.JSONField(default=list)
    at = models.DateTimeField()


class KindSpeedRatio(models.Model):
    """Speed of a GPU of one model relative to one of another, as one training measured it; kept beyond its end."""

    #: The training, until it is deleted.
    job = models.ForeignKey(Job, on_delete=models.SET_NULL, null=True, related_name="kind_ratios")
    #: Digest of the training's code.
    code = models.CharField(max_length=64)
    #: GPU models; the first one in the alphabet is `base`.
    kind = models.CharField(max_length=128)
    base = models.CharField(max_length=128)
    #: Goodput on one GPU of `kind` over that on one of `base`.
    ratio = models.FloatField()
    at = models.DateTimeField(db_index=True)

    class Meta:
        ordering = ["-at", "-pk"]
        indexes = [models.Index(fields=["code", "-at"], name="kind_ratio_by_code")]
        constraints = [
            models.UniqueConstraint(fields=["job", "kind", "base"], name="kind_ratio_once_per_job"),
            models.CheckConstraint(condition=~Q(kind=F("base")), name="kind_ratio_of_two_kinds"),
            models.CheckConstraint(
                condition=Q(ratio__gte=1 / LARGEST_RATIO, ratio__lte=LARGEST_RATIO), name="kind_ratio_is_plausible"
            ),
        ]
