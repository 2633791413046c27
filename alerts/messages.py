"""Texts of messages, made from stored alerts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.urls import reverse

from alerts.alert_kinds import Kind
from alerts.models import Alert, Delivery
from core.time import duration, iso
from jobs.messages import text_of
from jobs.words import gpus

__all__ = ["Message", "message_of", "title_of"]

#: Largest number of lines of a digest in words. A webhook gets all alerts.
_MOST_LINES = 20
_TITLES: dict[str, str] = {
    Kind.FAILED: "{training} failed",
    Kind.DONE: "{training} is done",
    Kind.WAITS: "{training} has waited for {lasted}",
    Kind.TAKEN: "GPUs were taken from {training}",
    Kind.LOSS: "Look at the loss of {training}",
    Kind.IDLE: "The GPUs of {training} have been idle for {lasted}",
    Kind.STUDY_DONE: "{study} is done",
    Kind.STUDY_PAUSED: "{study} has paused",
    Kind.QUOTA: "Instance group {group} uses all of its quota",
}


@dataclass(frozen=True)
class Message:
    #: Id of the delivery: the same for each attempt to send it.
    id: int
    title: str
    text: str
    #: For webhooks.
    payload: dict[str, Any]


def title_of(alert: Alert) -> str:
    """One line."""
    training = f"training {alert.job_id} ({alert.params.get('name', '')})" if alert.job_id else ""
    study = f"study {alert.study_id} ({alert.params.get('name', '')})" if alert.study_id else ""
    group = alert.group.name if alert.group else ""
    lasted = duration(alert.params.get("lasted_seconds", 0))
    title = _TITLES[alert.kind].format(training=training, study=study, group=group, lasted=lasted)
    return " ".join((title[:1].upper() + title[1:]).split())


def message_of(delivery: Delivery, alerts: Sequence[Alert]) -> Message:
    """Return the message of a delivery with these alerts; each needs its group."""
    if delivery.is_test:
        title, text = "A test of Tidepool's alerts", "This channel works. Alerts are sent according to your rules."
    elif len(alerts) == 1:
        title, text = title_of(alerts[0]), _words(alerts[0])
    else:
        title, text = f"{len(alerts)} alerts", _digest(alerts)
    payload = {
        "id": delivery.pk,
        "is_test": delivery.is_test,
        "created_at": iso(delivery.created_at),
        "title": title,
        "text": text,
        "alerts": [_as_json(alert) for alert in alerts],
    }
    return Message(delivery.pk, title, text, payload)


def _words(alert: Alert) -> str:
    """Return the facts of an alert, and the page that shows them."""
    params = alert.params
    parts = [text_of(params.get("because", {})), params.get("advice", ""), params.get("sentence", "")]
    if alert.kind == Kind.QUOTA:
        parts.append(f"Its trainings hold {params['held']} of {gpus(params['quota'])}.")
    return "\n".join(part for part in (*parts, _address(alert)) if part)


def _digest(alerts: Sequence[Alert]) -> str:
    lines = [f"{alert.at:%H:%M} {title_of(alert)}" for alert in alerts[:_MOST_LINES]]
    more = len(alerts) - len(lines)
    if more:
        lines.append(f"and {more} more")
    return "\n".join(["Times are in UTC.", *lines])


def _address(alert: Alert) -> str:
    """Return the address of the alert's page; "" where the site's own address is not known."""
    if not settings.TIDEPOOL_SITE_URL:
        return ""
    if alert.job_id:
        return f"{settings.TIDEPOOL_SITE_URL}{reverse('jobs:detail', args=[alert.job_id])}"
    if alert.study_id:
        return f"{settings.TIDEPOOL_SITE_URL}{reverse('studies:detail', args=[alert.study_id])}"
    return f"{settings.TIDEPOOL_SITE_URL}{reverse('groups:detail', args=[alert.group_id])}"


def _as_json(alert: Alert) -> dict[str, Any]:
    return {
        "kind": alert.kind,
        "at": iso(alert.at),
        "title": title_of(alert),
        "text": _words(alert),
        "job": alert.job_id,
        "study": alert.study_id,
        "name": alert.params.get("name", ""),
        "instance_group": alert.group.name if alert.group else "",
        "url": _address(alert),
    }
