"""Replays of the cluster's past under other rules: request, progress and result."""

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from core.claims import Claimable

__all__ = ["Replay"]


class Replay(Claimable):
    """A replay, run by the background worker and kept for `replay.control.KEPT`."""

    class State(models.TextChoices):
        WAITING = "WAITING"
        RUNNING = "RUNNING"
        DONE = "DONE"
        #: `problem` has the reason.
        FAILED = "FAILED"

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="replays")
    created_at = models.DateTimeField()
    #: Replayed period.
    start = models.DateTimeField()
    end = models.DateTimeField()
    #: Fields of `scheduling.replay.history.Alternative`; {}: only the rules as they were.
    alternative = models.JSONField(default=dict)
    state = models.CharField(max_length=16, choices=State, default=State.WAITING)
    #: Progress from 0 to 1.
    progress = models.FloatField(default=0)
    problem = models.TextField(blank=True, default="")
    #: Figures, errors and charts, with the fields of the API's `ResultOutput`; {} until the replay is done.
    result = models.JSONField(default=dict)
    #: One row for each training, with the columns `replay.player.JOB_COLUMNS`.
    jobs = models.JSONField(default=list)
    #: GPUs of each training over time, and the reasons. Keys "recorded", "same" and "other". Each has `held`, a list of
    #: [Unix seconds, job, GPUs]; the latter two also have `notes`, a list of [Unix seconds, job, target in GPUs, params
    #: of the sentence or null]. An entry holds until the next one of the job. {}: there were too many changes.
    moments = models.JSONField(default=dict)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["id"], condition=Q(state__in=("WAITING", "RUNNING")), name="replay_not_done")]
        constraints = [
            models.CheckConstraint(condition=Q(end__gt=F("start")), name="replay_window_in_order"),
            models.CheckConstraint(
                condition=Q(state__in=("WAITING", "RUNNING", "DONE", "FAILED")), name="replay_state"
            ),
            models.CheckConstraint(condition=~Q(state="FAILED") | ~Q(problem=""), name="replay_failed_says_why"),
            models.CheckConstraint(
                condition=(Q(state="RUNNING") & ~Q(claim="")) | (~Q(state="RUNNING") & Q(claim="")),
                name="replay_claimed_while_played",
            ),
        ]
