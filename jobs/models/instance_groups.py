"""Instance groups: the tenants of the cluster."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from workers.models import ResourceGroup

__all__ = ["InstanceGroup"]


class InstanceGroup(models.Model):
    """A tenant: which slots its jobs may use and the policy that divides them."""

    class Policy(models.TextChoices):
        FIFO = "fifo"
        PRIORITY = "priority"
        FAIRSHARE = "fairshare"

    class State(models.TextChoices):
        #: Made, and not yet deployed: nobody can submit to it.
        REGISTERED = "REGISTERED"
        STARTED = "STARTED"
        #: Nothing new starts in it; what runs goes on.
        STOPPED = "STOPPED"

    name = models.CharField(max_length=64, unique=True)
    description = models.CharField(max_length=200, blank=True, default="")
    #: Name of the preset that it was made from, or "".
    template = models.CharField(max_length=64, blank=True, default="")
    state = models.CharField(max_length=16, choices=State, default=State.STARTED)
    #: +1 with each change by an administrator: a form knows by it that it is out of date.
    revision = models.PositiveIntegerField(default=1)
    resource_group = models.ForeignKey(ResourceGroup, on_delete=models.PROTECT, related_name="instance_groups")
    policy = models.CharField(max_length=16, choices=Policy, default=Policy.FAIRSHARE)
    preemption = models.BooleanField(default=False)
    reclaim_grace_seconds = models.PositiveIntegerField(default=10)
    #: No job is stopped for others before it has run this long; it may be shrunk.
    minimum_run_seconds = models.PositiveIntegerField(default=0)
    default_priority = models.PositiveIntegerField(default=5000)
    lowest_priority = models.PositiveIntegerField(default=1)
    highest_priority = models.PositiveIntegerField(default=10000)
    #: GPUs that it owns (None: no quota) and its part of what is left over.
    quota = models.PositiveIntegerField(null=True, blank=True)
    weight = models.PositiveIntegerField(default=1)
    #: May use more than its quota; others may use what it leaves of its quota.
    borrows = models.BooleanField(default=True)
    lends = models.BooleanField(default=True)
    #: Recorded; they take effect only under isolation.
    execution_user = models.CharField(max_length=64, blank=True, default="")
    deployment_directory = models.CharField(max_length=4096, blank=True, default="")
    #: Who may submit here. Empty: every user.
    members = models.ManyToManyField(settings.AUTH_USER_MODEL, blank=True, related_name="instance_groups")
    #: Who may change how its jobs share, and its members, beside the administrators of the cluster.
    admins = models.ManyToManyField(settings.AUTH_USER_MODEL, blank=True, related_name="administered_groups")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(condition=Q(weight__gte=1), name="instance_group_weight"),
            models.CheckConstraint(
                condition=Q(lowest_priority__gte=1)
                & Q(default_priority__gte=F("lowest_priority"))
                & Q(highest_priority__gte=F("default_priority"))
                & Q(highest_priority__lte=10000),
                name="instance_group_priorities_in_order",
            ),
            models.CheckConstraint(
                condition=Q(state__in=["REGISTERED", "STARTED", "STOPPED"]), name="instance_group_state"
            ),
        ]

    def __str__(self) -> str:
        return self.name
