"""What fleets are told to do, and where they stand."""

from django.db import models
from django.db.models import Q

from core.claims import Claimable

__all__ = ["AutoscalerLease", "FleetChange", "FleetState"]


class AutoscalerLease(Claimable):
    """The single row that the acting autoscaler holds."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="autoscaler_lease_single_row")]


class FleetChange(models.Model):
    """A change of a fleet: hosts that it starts, or a host that it stops once no training holds its GPUs."""

    class Action(models.TextChoices):
        START = "start"
        STOP = "stop"

    class State(models.TextChoices):
        DRAINING = "DRAINING"  # trainings leave the host live
        CALLING = "CALLING"  # the fleet's command runs
        COMING = "COMING"  # the command has been told to start hosts that have not reported yet
        DONE = "DONE"
        FAILED = "FAILED"
        CANCELLED = "CANCELLED"  # the host is wanted again, and stays

    #: States in which something is still to happen.
    OPEN = (State.DRAINING, State.CALLING, State.COMING)

    fleet = models.CharField(max_length=64)
    action = models.CharField(max_length=8, choices=Action)
    state = models.CharField(max_length=16, choices=State)
    #: Number of hosts to start or stop.
    count = models.PositiveIntegerField()
    #: Names of the hosts that have come, or that are to be stopped.
    hosts = models.JSONField(default=list)
    #: Names of the fleet's hosts in service at the time of the decision: any other has come since.
    before = models.JSONField(default=list)
    why = models.CharField(max_length=500)
    #: Message or error of the command; "": none.
    note = models.CharField(max_length=500, blank=True, default="")
    at = models.DateTimeField()
    called_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["fleet", "-id"], name="fleet_changes")]
        constraints = [
            models.UniqueConstraint(fields=["fleet"], condition=Q(state="CALLING"), name="fleet_calls_one_at_a_time"),
            models.CheckConstraint(
                condition=Q(ended_at=None, state__in=("DRAINING", "CALLING", "COMING"))
                | Q(ended_at__isnull=False, state__in=("DONE", "FAILED", "CANCELLED")),
                name="fleet_change_ended_or_open",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.action} {self.count} of {self.fleet}"


class FleetState(models.Model):
    """Where a fleet stands, as its last turn saw it."""

    name = models.CharField(max_length=64, unique=True)
    #: Time of the turn.
    at = models.DateTimeField()
    #: Decision of the turn, in words.
    sentence = models.CharField(max_length=500)
    #: Numbers of hosts: in service, coming, further ones that would be of use, and the most that it may have.
    hosts = models.PositiveIntegerField(default=0)
    coming = models.PositiveIntegerField(default=0)
    wanted = models.PositiveIntegerField(default=0)
    most = models.PositiveIntegerField(default=0)
    spent_month = models.FloatField(default=0)
    #: Time since which it has had a host too many; None: it has none.
    surplus_since = models.DateTimeField(null=True)
    #: Number of failures since its last success, the last one's reason, and the time of the next try.
    failures = models.PositiveIntegerField(default=0)
    failure = models.CharField(max_length=500, blank=True, default="")
    retry_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name
