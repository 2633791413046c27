"""A replay of the cluster's past under other rules: what was asked, how far it is, and what came of it."""

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from core.claims import Claimable

__all__ = ["Replay"]


class Replay(Claimable):
    """The background worker plays it. It is kept for `replay.control.KEPT`."""

    class State(models.TextChoices):
        WAITING = "WAITING"
        RUNNING = "RUNNING"
        DONE = "DONE"
        #: `problem` says why.
        FAILED = "FAILED"

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="replays")
    created_at = models.DateTimeField()
    #: The window.
    start = models.DateTimeField()
    end = models.DateTimeField()
    #: Fields of `scheduling.replay.history.Alternative`; nothing in it: only the rules as they were.
    alternative = models.JSONField(default=dict)
    state = models.CharField(max_length=16, choices=State, default=State.WAITING)
    #: 0..1, and what goes on.
    progress = models.FloatField(default=0)
    problem = models.TextField(blank=True, default="")
    #: Figures, errors and charts, as `ResultOutput` of the API lists them; {} until it is done.
    result = models.JSONField(default=dict)
    #: A row for each training: see `replay.player.JOB_COLUMNS`.
    jobs = models.JSONField(default=list)
    #: What each training had over the window, and why: "recorded", "same" and "other", each with `held`, a list of
    #: [Unix seconds, job, GPUs], and the latter two with `notes`, [Unix seconds, job, GPUs that it shall have, params
    #: of the sentence or null]; each holds from then on. {}: there were too many.
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
