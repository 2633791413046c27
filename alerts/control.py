"""The outbox: stores alerts once, makes messages of them, and notes what became of each try."""

import logging
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, QuerySet

from alerts.decide import NewAlert
from alerts.models import Alert, Channel, Delivery, QuietHours
from alerts.packing import MAX_TRIES, Quiet, is_quiet, messages_of, next_try
from alerts.sealing import unsealed
from alerts.senders import Route

__all__ = ["alerts_by_delivery", "claim", "due", "note_failed", "note_sent", "pack", "prune", "route_of", "store"]

logger = logging.getLogger(__name__)

#: What the window of `messages_of` needs, and more.
_LOOK_BACK = timedelta(hours=1)
_KEPT = timedelta(days=30)


def store(alerts: Sequence[NewAlert]) -> None:
    """Each once, however often it is decided."""
    rows = [
        Alert(
            channel_id=alert.channel,
            kind=alert.about.kind,
            key=alert.key,
            job_id=alert.about.job,
            group_id=alert.about.group,
            params=alert.about.params,
            at=alert.about.at,
        )
        for alert in alerts
    ]
    Alert.objects.bulk_create(rows, ignore_conflicts=True)


def pack(now: datetime) -> None:
    """Make messages of the alerts that are in none yet, as far as quiet hours and the limit let them go."""
    channels = Channel.objects.filter(alerts__delivery=None, alerts__isnull=False, owner__is_active=True)
    for channel in channels.distinct().order_by("pk"):
        if not is_quiet(_quiet_hours(channel), now):
            _pack(channel, now)


@transaction.atomic
def _pack(channel: Channel, now: datetime) -> None:
    locked = Channel.objects.select_for_update().filter(pk=channel.pk).first()
    if locked is None:
        return
    alerts = Alert.objects.filter(channel=locked, delivery=None).order_by("at", "pk")
    waiting = list(alerts.values_list("pk", flat=True))
    made = Delivery.objects.filter(channel=locked, is_test=False, created_at__gt=now - _LOOK_BACK)
    for numbers in messages_of(waiting, list(made.values_list("created_at", flat=True)), now):
        delivery = Delivery.objects.create(channel=locked, created_at=now, next_try_at=now)
        Alert.objects.filter(pk__in=numbers).update(delivery=delivery)


def _quiet_hours(channel: Channel) -> Quiet | None:
    row = QuietHours.objects.filter(owner=channel.owner_id).first()
    return Quiet(row.begins, row.ends, row.time_zone) if row else None


def due(now: datetime, most: int) -> list[Delivery]:
    """Messages to try now, the oldest first, at most one of each channel."""
    waiting = Delivery.objects.filter(state=Delivery.State.WAITING, channel__owner__is_active=True)
    waiting = waiting.filter(next_try_at__lte=now)
    first: dict[int, Delivery] = {}
    for delivery in waiting.select_related("channel").order_by("next_try_at", "pk")[: 20 * most]:
        first.setdefault(delivery.channel_id, delivery)
    return list(first.values())[:most]


def claim(delivery: Delivery, now: datetime) -> bool:
    """Count a try before it is made; False where somebody else makes it. After a crash the next one comes later."""
    mine = Delivery.objects.filter(pk=delivery.pk, state=Delivery.State.WAITING, tries=delivery.tries)
    later = next_try(delivery.tries + 1, now)
    if not mine.update(tries=F("tries") + 1, next_try_at=later):
        return False
    delivery.tries, delivery.next_try_at = delivery.tries + 1, later
    return True


def route_of(channel: Channel) -> Route:
    """Raises Unreadable."""
    return Route(channel.kind, unsealed(channel.address), unsealed(channel.secret) if channel.secret else "")


def note_sent(delivery: Delivery, now: datetime) -> None:
    _waiting(delivery).update(state=Delivery.State.SENT, sent_at=now, problem="")
    logger.info("delivery=%s channel=%s sent at try %s", delivery.pk, delivery.channel_id, delivery.tries)


def note_failed(delivery: Delivery, problem: str, *, is_final: bool) -> None:
    is_over = is_final or delivery.tries >= MAX_TRIES
    state = Delivery.State.FAILED if is_over else Delivery.State.WAITING
    _waiting(delivery).update(state=state, problem=problem[:300])
    logger.warning("delivery=%s channel=%s try %s: %s", delivery.pk, delivery.channel_id, delivery.tries, problem)


def prune(now: datetime) -> None:
    """Forget what is old, with its alerts."""
    Delivery.objects.filter(created_at__lt=now - _KEPT).delete()
    Alert.objects.filter(delivery=None, at__lt=now - _KEPT).delete()


def _waiting(delivery: Delivery) -> QuerySet[Delivery]:
    return Delivery.objects.filter(pk=delivery.pk, state=Delivery.State.WAITING)


def alerts_by_delivery(deliveries: Sequence[Delivery]) -> dict[int, list[Alert]]:
    """The alerts of each, the oldest first, with their groups."""
    found: dict[int, list[Alert]] = defaultdict(list)
    for alert in Alert.objects.filter(delivery__in=deliveries).select_related("group").order_by("at", "pk"):
        if alert.delivery_id is not None:
            found[alert.delivery_id].append(alert)
    return found
