"""How a job runs."""

from __future__ import annotations

from django.db import models

from jobs.models.jobs import Job

__all__ = ["JobRun"]


class JobRun(models.Model):
    """How a job runs: its attempt, what it holds and shall hold, how far it is and what stopped it.

    Made in the transaction that makes the job, and changed only through `jobs.control.transition`, under the lock of
    the job's row. `error` stays here when the job is over: it is what its last attempt left.
    """

    job = models.OneToOneField(Job, on_delete=models.CASCADE, primary_key=True, related_name="run")
    #: Life number; +1 at each start from nothing or from a checkpoint. 0: never started.
    attempt = models.PositiveIntegerField(default=0)
    #: Raised with each change of the set of slots that it shall hold.
    target_revision = models.PositiveIntegerField(default=0)
    #: How many slots it shall have, by the latest plan.
    target_slots = models.PositiveIntegerField(default=0)
    #: World size now, as its ranks reported; 0 unless it trains.
    slots = models.PositiveIntegerField(default=0)
    #: Active generation within the attempt; 0: none yet.
    generation = models.PositiveIntegerField(default=0)
    #: `max_slots` at the first start: the effective batch size follows it for good. 0: never started.
    first_max_slots = models.PositiveIntegerField(default=0)
    #: Host that runs the coordinator; it changes only once the job holds no slot there any more.
    lead_host = models.CharField(max_length=64, blank=True, default="")
    #: The attempt whose training is complete with its final weights written. 0: none.
    completed_attempt = models.PositiveIntegerField(default=0)
    #: Attempts that were lost in a row without a completed step.
    fruitless_starts = models.PositiveIntegerField(default=0)
    #: While PREEMPTING: until when it may stop by itself, after a step and with a checkpoint. None: it is ended.
    halt_until = models.DateTimeField(null=True, blank=True)
    #: `jobs.control.outcome.Failure` of the newest attempt that an error of the script ended, or {}.
    failure = models.JSONField(default=dict)
    #: What its coordinator gave an attempt up for, with the number of that, or {}.
    given_up = models.JSONField(default=dict)
    #: What the owner wants once its slots are empty: PENDING or SUSPENDED (only while PREEMPTING).
    after_stop = models.CharField(max_length=16, blank=True, default="")

    step = models.PositiveBigIntegerField(default=0)
    epoch = models.PositiveIntegerField(default=0)
    #: 0..1, None while unknown.
    progress = models.FloatField(null=True, blank=True)
    #: Name -> last value, e.g. {"loss": 0.03, "accuracy": 97.2}. Percent for accuracies.
    final_metrics = models.JSONField(default=dict)
    #: {"kind", "message", "traceback"} of what ended it, maybe "tried": a sentence about its attempts. Or {}.
    error = models.JSONField(default=dict)
