"""Users' channels and rules, and the outbox of alerts."""

from django.conf import settings
from django.db import models
from django.db.models import Q

from alerts.alert_kinds import OF_STUDIES, ChannelKind, Kind
from core.claims import Claimable
from jobs.models import InstanceGroup, Job
from studies.models import Study

__all__ = ["Alert", "AlertMark", "AlertRule", "Channel", "Delivery", "QuietHours"]


class Channel(models.Model):
    """A destination of a user's alerts. Address and secret are encrypted: see `alerts.encryption`."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="alert_channels")
    name = models.CharField(max_length=64)
    kind = models.CharField(max_length=16, choices=ChannelKind)
    address = models.TextField()
    #: The address as it is shown.
    masked = models.CharField(max_length=255)
    #: Key that signs messages to a webhook; "" for other kinds.
    secret = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["owner", "name"], name="one_alert_channel_of_a_name"),
            models.CheckConstraint(condition=Q(kind__in=ChannelKind.values), name="alert_channel_kind"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.pk})"


class AlertRule(models.Model):
    """Tell the channel's owner of this kind of thing."""

    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="rules")
    kind = models.CharField(max_length=16, choices=Kind)
    #: Group whose trainings the rule watches, as far as the owner may see them; None: the owner's own, in all groups.
    group = models.ForeignKey(InstanceGroup, null=True, blank=True, on_delete=models.CASCADE, related_name="+")
    #: Minutes for which a condition must last before an alert; None for instantaneous events.
    minutes = models.PositiveIntegerField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["channel", "kind", "group"], name="one_alert_rule_of_a_kind_and_group"),
            models.UniqueConstraint(
                fields=["channel", "kind"], condition=Q(group=None), name="one_alert_rule_of_a_kind_for_all_groups"
            ),
            models.CheckConstraint(condition=Q(kind__in=Kind.values), name="alert_rule_kind"),
            models.CheckConstraint(condition=~Q(kind=Kind.QUOTA, group=None), name="alert_rule_of_a_quota_has_a_group"),
            models.CheckConstraint(
                condition=Q(kind__in=[Kind.WAITS, Kind.IDLE], minutes__gte=1)
                | (~Q(kind__in=[Kind.WAITS, Kind.IDLE]) & Q(minutes=None)),
                name="alert_rule_has_minutes_iff_it_waits",
            ),
        ]

    @property
    def subjects(self) -> str:
        """The word for the objects that the rule watches."""
        return "studies" if self.kind in OF_STUDIES else "trainings"


class QuietHours(models.Model):
    """Times of the day between which a user gets no messages. Alerts of that period are sent afterwards."""

    owner = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, primary_key=True, related_name="quiet_hours"
    )
    begins = models.TimeField()
    ends = models.TimeField()
    #: Name of the time zone in the IANA database, such as Europe/Berlin.
    time_zone = models.CharField(max_length=64, default="UTC")

    class Meta:
        constraints = [
            models.CheckConstraint(condition=~Q(begins=models.F("ends")), name="quiet_hours_end_at_another_time")
        ]


class Delivery(Claimable):
    """One message to a channel, with one alert, several, or none as a test. The outbox."""

    class State(models.TextChoices):
        WAITING = "waiting"
        SENT = "sent"
        FAILED = "failed"

    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="deliveries")
    state = models.CharField(max_length=8, choices=State, default=State.WAITING)
    is_test = models.BooleanField(default=False)
    created_at = models.DateTimeField()
    #: Number of tries; each is counted before it is made.
    tries = models.PositiveSmallIntegerField(default=0)
    next_try_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True, blank=True)
    #: Why the last try failed, or "".
    problem = models.CharField(max_length=300, blank=True, default="")

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["next_try_at"], condition=Q(state="waiting"), name="deliveries_to_try"),
            models.Index(fields=["created_at"], name="deliveries_by_time"),
        ]
        constraints = [
            models.CheckConstraint(
                condition=Q(state="sent", sent_at__isnull=False) | (~Q(state="sent") & Q(sent_at=None)),
                name="delivery_sent_iff_sent_at",
            ),
            models.CheckConstraint(condition=Q(state="waiting") | Q(claim=""), name="delivery_claimed_while_waiting"),
        ]


class Alert(models.Model):
    """One event to report to one channel, once."""

    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="alerts")
    kind = models.CharField(max_length=16, choices=Kind)
    #: Unique key of the event.
    key = models.CharField(max_length=120)
    #: Subject of the alert: a training, a study, or else the group.
    job = models.ForeignKey(Job, null=True, on_delete=models.CASCADE, related_name="+")
    study = models.ForeignKey(Study, null=True, on_delete=models.CASCADE, related_name="+")
    group = models.ForeignKey(InstanceGroup, null=True, on_delete=models.CASCADE, related_name="+")
    #: Parameters of the alert's sentence, see `alerts.messages`.
    params = models.JSONField(default=dict)
    at = models.DateTimeField()
    #: Message that carries the alert; None: no message does yet.
    delivery = models.ForeignKey(Delivery, null=True, on_delete=models.CASCADE, related_name="alerts")

    class Meta:
        ordering = ["at", "id"]
        constraints = [models.UniqueConstraint(fields=["channel", "key"], name="alert_once")]


class AlertMark(models.Model):
    """Position up to which events have been read. One row."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    #: Number of the newest `JobEvent` that is not read again.
    event = models.PositiveBigIntegerField(default=0)
    #: Number of the newest `StudyEvent` that is not read again.
    study_event = models.PositiveBigIntegerField(default=0)
    #: Groups that used all of their quota at the last look.
    full_groups = models.JSONField(default=list)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="alert_mark_single_row")]
