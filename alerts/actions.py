"""Users' actions on their own channels, rules and quiet hours. Nobody else sees or changes these."""

import secrets
from dataclasses import dataclass
from datetime import time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from alerts.addresses import checked_address, masked
from alerts.alert_kinds import DEFAULT_MINUTES, ChannelKind, Kind
from alerts.encryption import sealed
from alerts.models import AlertRule, Channel, Delivery, QuietHours
from alerts.queries import find_channel
from core.errors import Conflict, NotFound, TooMany, field_error
from core.text import checked_name
from jobs.models import InstanceGroup
from jobs.queries.groups import find_visible_group

__all__ = [
    "NewChannel",
    "add_channel",
    "add_rule",
    "end_quiet_hours",
    "remove_channel",
    "remove_rule",
    "set_quiet_hours",
    "test_channel",
]

_MAX_CHANNELS, _MAX_RULES = 20, 100
_MAX_NAME = 64
#: Tests of a channel that are not sent yet, or were made within a minute.
_MAX_TESTS = 3
_LONGEST_MINUTES = 7 * 24 * 60


@dataclass(frozen=True)
class NewChannel:
    row: Channel
    #: Key that signs messages, shown only now; "" for channels without signatures.
    secret: str


@transaction.atomic
def add_channel(user: User, name: str, kind: str, address: str) -> NewChannel:
    """Create a channel. Its address is stored so that no one can read it again, and shown masked."""
    name = checked_name(name, limit=_MAX_NAME)
    if kind not in ChannelKind.values:
        raise field_error("kind", f"The kind must be one of {', '.join(ChannelKind.values)}.")
    if kind == ChannelKind.EMAIL and not settings.TIDEPOOL_MAIL_URL:
        raise field_error("kind", "This site has no mail server: use a webhook or Slack, or ask an administrator.")
    address = checked_address(kind, address, settings.TIDEPOOL_ALERT_NETWORKS)
    _lock(user)
    if Channel.objects.filter(owner=user).count() >= _MAX_CHANNELS:
        raise Conflict(f"You have {_MAX_CHANNELS} channels, the maximum: remove an unused channel.")
    secret = secrets.token_urlsafe(32) if kind == ChannelKind.WEBHOOK else ""
    row = Channel(owner=user, name=name, kind=kind, address=sealed(address), masked=masked(kind, address))
    row.secret = sealed(secret) if secret else ""
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError:
        sentence = f"You already have a channel named “{name}”: choose another name, or remove that channel."
        raise Conflict(sentence, fields={"name": [sentence]}) from None
    return NewChannel(row, secret)


def remove_channel(user: User, channel_id: int) -> None:
    """Delete a channel with its rules and unsent messages."""
    find_channel(user, channel_id).delete()


@transaction.atomic
def test_channel(user: User, channel_id: int) -> Delivery:
    """Send a test message at once, even in quiet hours."""
    channel, now = find_channel(user, channel_id), timezone.now()
    _lock(user)
    tests = Delivery.objects.filter(channel=channel, is_test=True)
    lately = Q(created_at__gt=now - timedelta(minutes=1)) | Q(state=Delivery.State.WAITING)
    if tests.filter(lately).count() >= _MAX_TESTS:
        raise TooMany("Test messages of this channel are being sent: wait a minute.", retry_seconds=60)
    return Delivery.objects.create(channel=channel, is_test=True, created_at=now, next_try_at=now)


@transaction.atomic
def add_rule(
    user: User, channel_id: int, kind: str, group: int | str | None = None, minutes: int | None = None
) -> AlertRule:
    """Create a rule. group: id or name; None: the user's trainings in all groups."""
    channel = find_channel(user, channel_id)
    if kind not in Kind.values:
        raise field_error("kind", f"The kind must be one of {', '.join(Kind.values)}.")
    row = AlertRule(channel=channel, kind=kind, group=_group(user, kind, group), minutes=_minutes(kind, minutes))
    _lock(user)
    if AlertRule.objects.filter(channel__owner=user).count() >= _MAX_RULES:
        raise Conflict(f"You have {_MAX_RULES} rules, the maximum: remove an unused rule.")
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError:
        raise Conflict("This channel already has this rule: remove it to set other minutes.") from None
    return row


def remove_rule(user: User, rule_id: int) -> None:
    if not AlertRule.objects.filter(channel__owner=user, pk=rule_id).delete()[0]:
        raise NotFound("Rule not found: look it up in the list.")


def set_quiet_hours(user: User, begins: time, ends: time, time_zone: str) -> QuietHours:
    if begins == ends:
        raise field_error("ends", "The quiet hours begin and end at the same time: change one of the times.")
    try:
        ZoneInfo(time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise field_error("time_zone", "Unknown time zone: enter a name such as Europe/Berlin or UTC.") from None
    values = {"begins": begins, "ends": ends, "time_zone": time_zone}
    return QuietHours.objects.update_or_create(owner=user, defaults=values)[0]


def end_quiet_hours(user: User) -> bool:
    """Remove the quiet hours, and return whether there were any."""
    return bool(QuietHours.objects.filter(owner=user).delete()[0])


def _lock(user: User) -> None:
    """Lock the user's row, so that concurrent requests count each other's new rows."""
    User.objects.select_for_update().get(pk=user.pk)


def _group(user: User, kind: str, reference: int | str | None) -> InstanceGroup | None:
    if reference is None:
        if kind == Kind.QUOTA:
            raise field_error("group", "Quotas belong to groups: choose a group.")
        return None
    group = find_visible_group(user, reference)
    if group is None:
        raise field_error("group", "Instance group not found: look it up in the list.")
    if kind == Kind.QUOTA and not group.quota:
        raise field_error("group", f"{group.name} has no quota: choose another group.")
    return group


def _minutes(kind: str, minutes: int | None) -> int | None:
    if kind not in DEFAULT_MINUTES:
        if minutes is not None:
            raise field_error("minutes", "This event is reported at once: remove the minutes.")
        return None
    if minutes is None:
        return DEFAULT_MINUTES[kind]
    if not 1 <= minutes <= _LONGEST_MINUTES:
        raise field_error("minutes", f"Enter 1 to {_LONGEST_MINUTES} minutes.")
    return minutes
