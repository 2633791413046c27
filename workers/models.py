"""The machines: hosts, their slots, and the resource groups that offer them."""

import re

from django.db import models

from workers.clocks import clock_warning

__all__ = ["HOST_NAME", "CapacityPoint", "GpuReading", "Host", "JoinToken", "ResourceGroup", "Slot"]

#: The form of a host's name, which stands in queue names, folder names and addresses.
HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Host(models.Model):
    """A machine that runs our executor."""

    class State(models.TextChoices):
        ONLINE = "ONLINE"
        DRAINING = "DRAINING"
        OFFLINE = "OFFLINE"
        LOST = "LOST"

    name = models.CharField(max_length=64, unique=True)
    state = models.CharField(max_length=16, choices=State, default=State.OFFLINE)
    #: Where other hosts reach it.
    address = models.CharField(max_length=255, default="127.0.0.1")
    ncpus = models.PositiveIntegerField(default=0)
    ngpus = models.PositiveIntegerField(default=0)
    memory_bytes = models.BigIntegerField(default=0)
    #: Its GPUs are CPU processes that stand in for GPUs.
    virtual = models.BooleanField(default=False)
    #: None: the host does not tell.
    nprocs = models.PositiveIntegerField(null=True)
    ncores = models.PositiveIntegerField(null=True)
    nthreads = models.PositiveIntegerField(null=True)
    swap_bytes = models.BigIntegerField(null=True)
    #: Changes with each start of the executor.
    boot = models.CharField(max_length=64, blank=True, default="")
    last_report_at = models.DateTimeField(null=True, blank=True)
    #: `Report.at` of its newest report: orders reports, and is never compared with our clock.
    reported_at = models.FloatField(default=0)
    #: Of its newest reports, a second apart: our clock less its own. See `workers.clocks`.
    clock_offsets = models.JSONField(default=list)
    clock_read_at = models.DateTimeField(null=True)
    #: How far its clock is behind; less than nothing: ahead. None: not known yet.
    clock_behind_seconds = models.FloatField(null=True)
    #: Revision of the desired state that the control plane wants carried out, and the newest one that the executor has.
    desired_revision = models.PositiveBigIntegerField(default=0)
    applied_revision = models.PositiveBigIntegerField(default=0)
    #: Why its newest report could not be stored as a whole; "": it could.
    report_problem = models.CharField(max_length=500, blank=True, default="")
    #: An administrator took it from the lists; its history stays. None again once it comes back.
    removed_at = models.DateTimeField(null=True)
    #: While removed: the start of its executor whose reports are not listened to. "": it comes back with any report.
    removed_boot = models.CharField(max_length=64, blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(removed_at=None) | models.Q(state="OFFLINE"), name="host_removed_offers_nothing"
            )
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def clock_warning(self) -> str:
        return clock_warning(self.clock_behind_seconds)


class Slot(models.Model):
    """The unit handed out: one GPU of a host (or one virtual GPU). It exists once, whatever groups offer it."""

    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="slots")
    index = models.PositiveIntegerField()
    device_model = models.CharField(max_length=128, blank=True, default="")
    device_uuid = models.CharField(max_length=128, blank=True, default="")
    virtual = models.BooleanField(default=False)

    class Meta:
        ordering = ["host__name", "index"]
        constraints = [models.UniqueConstraint(fields=["host", "index"], name="slot_once_per_host")]

    def __str__(self) -> str:
        return f"{self.host.name}:{self.index}"


class CapacityPoint(models.Model):
    """Slots of this host in the pool from `at` on: none once it has left. Written when that changes."""

    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="capacity_points")
    at = models.DateTimeField()
    slots = models.PositiveIntegerField()

    class Meta:
        ordering = ["at", "id"]
        indexes = [
            models.Index(fields=["host", "at"], name="capacity_by_host"),
            models.Index(fields=["at"], name="capacity_by_time"),
        ]


class GpuReading(models.Model):
    """The newest reading of a slot's device: one row per slot. What they add up to is in usage."""

    slot = models.OneToOneField(Slot, on_delete=models.CASCADE, related_name="reading")
    at = models.DateTimeField()
    utilisation_percent = models.FloatField(null=True)
    #: Since when it has done nothing; None: it works, or does not tell.
    idle_since = models.DateTimeField(null=True)
    memory_used_bytes = models.BigIntegerField(null=True)
    memory_total_bytes = models.BigIntegerField(null=True)
    temperature_celsius = models.FloatField(null=True)
    power_watts = models.FloatField(null=True)
    #: What is being added up: the claim of `jobs` that it counts for, the beginning of its quarter of an hour, and how
    #: long the device was busy and idle in it so far. Written down and begun anew when either changes.
    counted_claim = models.PositiveBigIntegerField(null=True)
    counted_from = models.DateTimeField(null=True)
    busy_ms = models.PositiveIntegerField(default=0)
    idle_ms = models.PositiveIntegerField(default=0)


class ResourceGroup(models.Model):
    """A named set of hosts with a rule that says how many slots each offers."""

    class Selection(models.TextChoices):
        STATIC = "static"  # the hosts listed
        DYNAMIC = "dynamic"  # every host that meets the requirement

    class Kind(models.TextChoices):
        GPU = "gpu"  # slots that ranks may hold
        SERVICE = "service"  # CPU slots, for display only, as in WMLA's ComputeHosts

    name = models.CharField(max_length=64, unique=True)
    description = models.CharField(max_length=200, blank=True, default="")
    kind = models.CharField(max_length=16, choices=Kind, default=Kind.GPU)
    #: Slots per host: a formula over host attributes, such as `ngpus` or `ncpus*2` (see slot_formula.py).
    slot_rule = models.CharField(max_length=200, default="ngpus")
    selection = models.CharField(max_length=16, choices=Selection, default=Selection.DYNAMIC)
    #: Of a dynamic selection: an expression such as `ngpus > 0`. "": every host.
    requirement = models.CharField(max_length=200, blank=True, default="")
    hosts = models.ManyToManyField(Host, blank=True, related_name="static_groups")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class JoinToken(models.Model):
    """Lets so many machines more become hosts. Only its digest is stored; the row goes with its last use."""

    #: sha256 of the token, which is random enough to need no slow hash.
    digest = models.CharField(max_length=64, unique=True)
    hosts_left = models.PositiveIntegerField()
    expires_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]
        constraints = [models.CheckConstraint(condition=models.Q(hosts_left__gt=0), name="join_token_has_uses")]
