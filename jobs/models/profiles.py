"""Speed measurements of trainings, kept over all of a job's attempts."""

from django.db import models
from django.db.models import F, Q

from jobs.models.jobs import Job

__all__ = ["JobProfile", "ThroughputPoint"]


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
    #: Incremented with each change.
    revision = models.PositiveIntegerField(default=0)
    at = models.DateTimeField()
