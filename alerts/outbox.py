"""The outbox: stores alerts once, makes messages of them, and notes what became of each try."""

import logging
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from alerts.batching import MAX_TRIES, Quiet, is_quiet, messages_of, next_try
from alerts.encryption import unsealed
from alerts.models import Alert, AlertMark, Channel, Delivery, QuietHours
from alerts.routing import NewAlert
from alerts.senders import Route
from core.claims import Claim, Claims

__all__ = [
    "alerts_by_delivery",
    "claim_due",
    "has_unsent",
    "note_failed",
    "note_sent",
    "pack",
    "prune",
    "route_of",
    "skip_events",
    "store",
]

logger = logging.getLogger(__name__)

#: Span of deliveries that is read; `messages_of` needs a shorter one.
_LOOK_BACK = timedelta(hours=1)
_KEPT = timedelta(days=30)
#: Sending takes 20 s at most (`alerts.senders`), and a message is never tried again sooner than after a minute.
_CLAIMS = Claims(
    Delivery,
    duration=timedelta(seconds=60),
    waiting={"state": Delivery.State.WAITING, "claim": ""},
    working={"state": Delivery.State.WAITING},
    related=("channel",),
)


def skip_events(newest: int, newest_of_studies: int) -> None:
    """Move the mark to the newest events, so that the first rule only applies to later ones."""
    newest_events = {"event": newest, "study_event": newest_of_studies}
    mark, _ = AlertMark.objects.get_or_create(defaults=newest_events)
    if (newest, newest_of_studies) != (mark.event, mark.study_event) or mark.full_groups:
        AlertMark.objects.update(**newest_events, full_groups=[])


def has_unsent() -> bool:
    """Return whether a user who may log in has alerts or messages that are not sent yet."""
    unpacked = Alert.objects.filter(delivery=None, channel__owner__is_active=True)
    unsent = Delivery.objects.filter(state=Delivery.State.WAITING, channel__owner__is_active=True)
    return unsent.exists() or unpacked.exists()


def store(alerts: Sequence[NewAlert]) -> None:
    """Each once, however often it is decided."""
    rows = [
        Alert(
            channel_id=alert.channel,
            kind=alert.about.kind,
            key=alert.key,
            job_id=alert.about.job,
            study_id=alert.about.study,
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


def claim_due(now: datetime, most: int) -> list[Claim[Delivery]]:
    """Claim messages to try now, the oldest first, at most one of each channel. The try is counted before it is made.

    The next try of a message whose sender dies comes as late as after a failure.
    """
    due = _CLAIMS.free(now).filter(next_try_at__lte=now, channel__owner__is_active=True)
    oldest: dict[int, tuple[int, int]] = {}
    columns = ("channel_id", "pk", "tries")
    for channel, pk, tries in due.order_by("next_try_at", "pk").values_list(*columns)[: 20 * most]:
        oldest.setdefault(channel, (pk, tries))
    claims = [
        _CLAIMS.claim(pk, now, only=Q(tries=tries), tries=tries + 1, next_try_at=next_try(tries + 1, now))
        for pk, tries in list(oldest.values())[:most]
    ]
    return [claim for claim in claims if claim is not None]


def route_of(channel: Channel) -> Route:
    """Raises Unreadable."""
    return Route(channel.kind, unsealed(channel.address), unsealed(channel.secret) if channel.secret else "")


def note_sent(claim: Claim[Delivery], now: datetime) -> None:
    """Raises ClaimLost."""
    _CLAIMS.finish(claim, state=Delivery.State.SENT, sent_at=now, problem="")
    delivery = claim.row
    logger.info("delivery=%s channel=%s sent at try %s", delivery.pk, delivery.channel_id, delivery.tries)


def note_failed(claim: Claim[Delivery], problem: str, *, is_final: bool) -> None:
    """Raises ClaimLost."""
    delivery = claim.row
    is_over = is_final or delivery.tries >= MAX_TRIES
    state = Delivery.State.FAILED if is_over else Delivery.State.WAITING
    _CLAIMS.finish(claim, state=state, problem=problem[:300])
    logger.warning("delivery=%s channel=%s try %s: %s", delivery.pk, delivery.channel_id, delivery.tries, problem)


def prune(now: datetime) -> None:
    """Delete old deliveries with their alerts."""
    Delivery.objects.filter(created_at__lt=now - _KEPT).delete()
    Alert.objects.filter(delivery=None, at__lt=now - _KEPT).delete()


def alerts_by_delivery(deliveries: Sequence[Delivery]) -> dict[int, list[Alert]]:
    """Return the alerts of each, the oldest first, with their groups."""
    found: dict[int, list[Alert]] = defaultdict(list)
    for alert in Alert.objects.filter(delivery__in=deliveries).select_related("group").order_by("at", "pk"):
        if alert.delivery_id is not None:
            found[alert.delivery_id].append(alert)
    return found
