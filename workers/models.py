"""Hosts, their slots, and the resource groups that offer these."""

import re

from django.db import models

from scheduling.snapshot import Share
from workers.clocks import clock_warning

__all__ = ["HOST_NAME", "CapacityPoint", "GpuReading", "Host", "Intake", "JoinToken", "ResourceGroup", "Slot"]

#: Pattern of a host's name, which is part of queue names, folder names and addresses.
HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Host(models.Model):
    """Machine that runs an executor."""

    class State(models.TextChoices):
        ONLINE = "ONLINE"
        DRAINING = "DRAINING"
        OFFLINE = "OFFLINE"
        LOST = "LOST"

    class Isolation(models.TextChoices):
        #: Each training is behind a wall.
        WALLED = "walled"
        #: ... and those of each person are a user of their own.
        SEPARATE = "separate"
        #: ... each has limits, and opens no GPU but its own.
        SEALED = "sealed"
        #: Trainings are not kept apart, as the operator chose.
        SHARED = "shared"
        #: The host lacks the level that was chosen: it runs no training.
        NONE = "none"

    name = models.CharField(max_length=64, unique=True)
    state = models.CharField(max_length=16, choices=State, default=State.OFFLINE)
    #: Address at which other hosts reach this one.
    address = models.CharField(max_length=255, default="127.0.0.1")
    ncpus = models.PositiveIntegerField(default=0)
    ngpus = models.PositiveIntegerField(default=0)
    memory_bytes = models.BigIntegerField(default=0)
    #: Whether CPU processes stand in for the host's GPUs.
    virtual = models.BooleanField(default=False)
    #: Sockets, cores per socket, threads per core, and swap space; None: the host does not report them.
    nprocs = models.PositiveIntegerField(null=True)
    ncores = models.PositiveIntegerField(null=True)
    nthreads = models.PositiveIntegerField(null=True)
    swap_bytes = models.BigIntegerField(null=True)
    #: Name of the solver of conda on the PATH of its executor; "": none.
    conda = models.CharField(max_length=16, blank=True, default="")
    #: Name of the program on that PATH that runs container images; "": none.
    images = models.CharField(max_length=16, blank=True, default="", db_default="")
    #: Whether the executor prepares environments before jobs get its slots.
    prepares = models.BooleanField(default=False, db_default=False)
    #: Name of the fleet that started it; "": none did. See `capacity.fleets`.
    fleet = models.CharField(max_length=64, blank=True, default="", db_default="")
    #: Time at which the machine will be gone, by the control plane's clock; None: nobody said so.
    leaving_at = models.DateTimeField(null=True)
    #: Source of this notice, such as "AWS"; "": there is none.
    leaving_why = models.CharField(max_length=200, blank=True, default="", db_default="")
    #: Time since which the host drains because of it; None: it does not.
    drains_for_notice_since = models.DateTimeField(null=True)
    #: Level of isolation of its trainings, and a sentence for each thing that it does not keep them from.
    isolation = models.CharField(max_length=8, choices=Isolation, blank=True, default="", db_default="")
    isolation_lacks = models.JSONField(default=list, db_default=[])
    #: Versions of driver, CUDA, torch and NCCL, in words; "": virtual GPUs, or an earlier executor.
    gpu_software = models.CharField(max_length=500, blank=True, default="", db_default="")
    #: Sentence on what keeps trainings from the host's GPUs, with the remedy; "": nothing.
    gpu_problem = models.CharField(max_length=500, blank=True, default="", db_default="")
    #: Whether processes of trainings that are started there know the handshake; not under former releases.
    handshake = models.BooleanField(default=False, db_default=False)
    #: Processors and bytes of memory that its processes may use; None: its executor does not tell.
    cores = models.FloatField(null=True)
    usable_memory_bytes = models.BigIntegerField(null=True)
    #: Parts of both that its operator keeps for other programs than trainings.
    reserved_cores = models.FloatField(default=0.0, db_default=0.0)
    reserved_memory_bytes = models.BigIntegerField(default=0, db_default=0)
    #: Limits of what a training without wishes may use there for each slot; None: there is none.
    slot_memory_bytes = models.BigIntegerField(null=True)
    slot_cores = models.FloatField(null=True)
    slot_processes = models.PositiveBigIntegerField(null=True)
    #: Id of the executor's present run; changes with each start.
    boot = models.CharField(max_length=64, blank=True, default="")
    last_report_at = models.DateTimeField(null=True, blank=True)
    #: `Report.at` of the newest report: orders reports, and is never compared with the control plane's clock.
    reported_at = models.FloatField(default=0)
    #: Control plane's clock minus the host's, for the newest reports, a second apart. See `workers.clocks`.
    clock_offsets = models.JSONField(default=list)
    clock_read_at = models.DateTimeField(null=True)
    #: Seconds by which the host's clock is behind, negative if ahead; None: unknown.
    clock_behind_seconds = models.FloatField(null=True)
    #: Number of its key, see `workers.host_keys`; 0: it has none, and its reports are not signed.
    key_number = models.PositiveIntegerField(default=0, db_default=0)
    #: Number of the newest start of its executor that has sent a signed report.
    key_boot = models.PositiveBigIntegerField(default=0, db_default=0)
    #: Time at which a join token was exchanged for its present key; None: never, or it was removed since.
    joined_at = models.DateTimeField(null=True)
    #: Whether it has a user of the broker for itself, see `workers.broker_users`; False: it shares one with others.
    own_broker_user = models.BooleanField(default=False, db_default=False)
    #: Revision of the newest desired state, and of the newest one that the executor has applied.
    desired_revision = models.PositiveBigIntegerField(default=0)
    applied_revision = models.PositiveBigIntegerField(default=0)
    #: Why the newest report could not be stored completely; "": it could.
    report_problem = models.CharField(max_length=500, blank=True, default="")
    #: Time at which an administrator removed the host from the lists; None: listed.
    removed_at = models.DateTimeField(null=True)
    #: While removed: `boot` of the executor whose reports are ignored; "": any report brings the host back.
    removed_boot = models.CharField(max_length=64, blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(removed_at=None) | models.Q(state="OFFLINE"), name="host_removed_offers_nothing"
            ),
            # The password of the user comes from the number of the key.
            models.CheckConstraint(
                condition=models.Q(own_broker_user=False) | models.Q(key_number__gt=0), name="host_broker_user_has_key"
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def share(self) -> Share | None:
        """Cores and memory that one of its slots stands for; None: the host does not tell, or offers no slot."""
        if self.cores is None or self.usable_memory_bytes is None or not self.ngpus:
            return None
        memory = max(0, self.usable_memory_bytes - self.reserved_memory_bytes)
        return Share(max(0.0, self.cores - self.reserved_cores) / self.ngpus, memory // self.ngpus)

    @property
    def clock_warning(self) -> str:
        return clock_warning(self.clock_behind_seconds)


class Intake(models.Model):
    """The single row about the taking of hosts' reports. See `workers.lateness`."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    #: Time before which all reports sent have been taken, by the leading scheduler's clock; None: unknown.
    taken_until = models.DateTimeField(null=True)
    #: Number of messages that could not be read.
    dropped = models.PositiveBigIntegerField(default=0)
    #: Number of reports that their hosts have not sent, or had sent before.
    forged = models.PositiveBigIntegerField(default=0, db_default=0)

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="intake_single_row")]


class Slot(models.Model):
    """Unit of allocation: one GPU of a host, real or virtual. Several groups may offer the same slot."""

    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="slots")
    index = models.PositiveIntegerField()
    device_model = models.CharField(max_length=128, blank=True, default="")
    device_uuid = models.CharField(max_length=128, blank=True, default="")
    virtual = models.BooleanField(default=False)
    #: Fault of its device, as the newest report tells; "": the device is well.
    fault = models.CharField(max_length=300, blank=True, default="", db_default="")
    #: Time since which it is offered to nobody because of a fault, until a person returns it; None: it is offered.
    sick_since = models.DateTimeField(null=True)
    #: The fault for which it is sick; "": it is not.
    sick_why = models.CharField(max_length=300, blank=True, default="", db_default="")

    class Meta:
        ordering = ["host__name", "index"]
        constraints = [
            models.UniqueConstraint(fields=["host", "index"], name="slot_once_per_host"),
            models.CheckConstraint(
                condition=models.Q(sick_since=None, sick_why="")
                | models.Q(sick_since__isnull=False) & ~models.Q(sick_why=""),
                name="slot_sick_for_a_reason",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.host.name}:{self.index}"


class CapacityPoint(models.Model):
    """Number of slots that a host offers from `at` on, 0 once it has left. Written at each change."""

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
    """Newest reading of a slot's device, one row per slot. `usage` has the sums over time."""

    slot = models.OneToOneField(Slot, on_delete=models.CASCADE, related_name="reading")
    at = models.DateTimeField()
    utilisation_percent = models.FloatField(null=True)
    #: Time since which the device is idle; None: it works, or does not report its utilization.
    idle_since = models.DateTimeField(null=True)
    memory_used_bytes = models.BigIntegerField(null=True)
    memory_total_bytes = models.BigIntegerField(null=True)
    temperature_celsius = models.FloatField(null=True)
    power_watts = models.FloatField(null=True)
    #: Running sum: claim of `jobs` that it counts for, start of the quarter of an hour, and the device's busy and idle
    #: time in it so far. When the claim or the quarter changes, the sum is stored and restarted.
    counted_claim = models.PositiveBigIntegerField(null=True)
    counted_from = models.DateTimeField(null=True)
    busy_ms = models.PositiveIntegerField(default=0)
    idle_ms = models.PositiveIntegerField(default=0)
    #: The span of time that is still open, as `jobs.control.gpu_spans` stores it.
    open_span = models.JSONField(null=True)


class ResourceGroup(models.Model):
    """Named set of hosts, with a rule for the number of slots that each offers."""

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
    #: Condition for members of a dynamic selection, such as `ngpus > 0`; "": every host.
    requirement = models.CharField(max_length=200, blank=True, default="")
    hosts = models.ManyToManyField(Host, blank=True, related_name="static_groups")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class JoinToken(models.Model):
    """Token with which machines become hosts. Only its digest is stored; the last use deletes the row."""

    #: sha256 of the token, which is random enough to need no slow hash.
    digest = models.CharField(max_length=64, unique=True)
    hosts_left = models.PositiveIntegerField()
    #: Names of hosts and networks that may use it, see `workers.join_limits`; []: any.
    names = models.JSONField(default=list, db_default=[])
    networks = models.JSONField(default=list, db_default=[])
    expires_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]
        constraints = [models.CheckConstraint(condition=models.Q(hosts_left__gt=0), name="join_token_has_uses")]
