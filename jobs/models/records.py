"""Records that ranks leave: journals, metrics, checkpoints and validation results."""

from __future__ import annotations

from django.db import models

from jobs.models.jobs import Job

__all__ = ["Checkpoint", "Journal", "MetricPoint", "Validation"]


class Journal(models.Model):
    """How far a journal of a job has been stored; what an executor sends again is dropped by it."""

    name = models.CharField(max_length=255, unique=True)
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="journals")
    host = models.CharField(max_length=64)
    number = models.PositiveBigIntegerField(default=0)


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
    created_at = models.DateTimeField()

    class Meta:
        ordering = ["job", "-step"]
        constraints = [models.UniqueConstraint(fields=["job", "attempt", "step"], name="checkpoint_once")]


class Validation(models.Model):
    """What a job measures that trains nothing: the weights that another one left, on held-out data."""

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
