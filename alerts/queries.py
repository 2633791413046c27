"""A user's own channels, rules, quiet hours and messages."""

from django.contrib.auth.models import User
from django.db.models import Count, Min, QuerySet

from alerts.models import Alert, AlertRule, Channel, Delivery, QuietHours
from core.errors import existing

__all__ = ["channels", "deliveries", "find_channel", "newest_messages", "quiet_hours", "rules"]


def channels(user: User) -> QuerySet[Channel]:
    return Channel.objects.filter(owner=user)


def find_channel(user: User, channel_id: int) -> Channel:
    return existing(channels(user).filter(pk=channel_id).first(), "channel")


def rules(user: User) -> QuerySet[AlertRule]:
    return AlertRule.objects.filter(channel__owner=user).select_related("channel", "group")


def quiet_hours(user: User) -> QuietHours | None:
    return QuietHours.objects.filter(owner=user).first()


def deliveries(user: User) -> QuerySet[Delivery]:
    """Messages to the user's channels, the newest first, with how many alerts each has."""
    mine = Delivery.objects.filter(channel__owner=user).select_related("channel")
    return mine.annotate(alert_count=Count("alerts")).order_by("-id")


def newest_messages(user: User, most: int) -> list[tuple[Delivery, Alert | None]]:
    """Return the newest messages, each with its first alert; None: of a test."""
    rows = list(deliveries(user)[:most])
    numbers = [row.pk for row in rows]
    first = Alert.objects.filter(delivery__in=numbers).order_by().values("delivery").annotate(first=Min("pk"))
    alerts = Alert.objects.select_related("group").filter(pk__in=first.values("first"))
    by_delivery = {alert.delivery_id: alert for alert in alerts}
    return [(row, by_delivery.get(row.pk)) for row in rows]
