"""Measures of trainings by their ranks: rows that stay over all of a job's attempts."""

from django.db import models
from django.db.models import F, Q

from jobs.models.jobs import Job

__all__ = ["JobProfile", "ThroughputPoint"]


class ThroughputPoint(models.Model):
    """Newest durations of steps of one shape: a `tidepool.goodput.model.Point` on a kind of GPU."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="throughput")
    gpu_model = models.CharField(max_length=128)
    hosts = models.PositiveIntegerField()
    ranks = models.PositiveIntegerField()
    #: Samples of a rank's micro-batch.
    micro_batch = models.PositiveIntegerField()
    compute_seconds = models.FloatField()
    step_seconds = models.FloatField()
    #: How many steps were measured.
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
    """Speed of a job: fitted to its points whenever one of them is told. The scheduler reads this."""

    job = models.OneToOneField(Job, on_delete=models.CASCADE, related_name="profile")
    #: Samples of a step now, over all ranks.
    batch_size = models.PositiveIntegerField()
    #: Samples of a rank's micro-batch at most; 0: all that it has of a step is one.
    most_micro_batch = models.PositiveIntegerField(default=0)
    #: GPU model -> fields of `tidepool.goodput.model.ThroughputParameters`; a kind that no fit describes is not here.
    parameters = models.JSONField(default=dict)
    #: Fields of `tidepool.protocol.AdaptedBatch`, as they were told last; None: its batch does not adapt.
    adapted = models.JSONField(null=True)
    #: How many steps at the submitted batch a step was worth on average.
    worth = models.FloatField(default=1.0)
    #: The largest size that was measured, and by how many points.
    largest_ranks = models.PositiveIntegerField(default=1)
    points = models.PositiveIntegerField(default=0)
    #: How long its ranks stand still at a change of size; None: it has not changed yet.
    pause_seconds = models.FloatField(null=True)
    #: Raised with each change.
    revision = models.PositiveIntegerField(default=0)
    at = models.DateTimeField()
