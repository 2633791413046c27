"""Records in the audit whom django-axes locks out."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from core.audit.entries import audit
from core.models import AuditEntry
from core.text import storable

__all__ = ["record_lockout"]

_KIND = "log-in"


def record_lockout(sender: object, username: str | None, ip_address: str | None, **_: Any) -> None:
    """Once in the time that it lasts: who goes on guessing must not fill the database."""
    name, address = storable(username or "")[:255], (ip_address or "unknown")[:64]
    since = timezone.now() - timedelta(hours=settings.AXES_COOLOFF_TIME)
    with transaction.atomic():
        if not AuditEntry.objects.filter(kind=_KIND, key=address, name=name, at__gte=since).exists():
            after = {"from": address, "failures": settings.AXES_FAILURE_LIMIT}
            audit("Tidepool", "paused", kind=_KIND, key=address, name=name, after=after)
