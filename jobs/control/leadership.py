"""Leader election of the scheduler: a lease in one row, whose epoch each new leader raises.

The database's clock alone decides. Used by the scheduler's process only.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.db.models.expressions import Combinable
from django.db.models.functions import Now

from jobs.models import SchedulerLease

__all__ = ["LEASE_SECONDS", "Leadership", "Spent"]

LEASE_SECONDS = 3.0


@dataclass(frozen=True)
class Spent:
    """On one cycle: how long it took, and when its plan was carried out."""

    seconds: float
    decided_at: datetime


class Leadership:
    """A candidate for the lead. `epoch` is None while somebody else leads."""

    def __init__(self, holder: str | None = None) -> None:
        self._holder = holder or f"{socket.gethostname()}:{os.getpid()}"
        self.epoch: int | None = None

    def renew(self, spent: Spent | None = None) -> int | None:
        """Keep the lead, or take it over once it has expired; returns the epoch to write plans with.

        spent: on the cycle before, to be written down in passing.
        """
        if self.epoch is not None and not self._extend(self.epoch, spent):
            self.epoch = None
        if self.epoch is None:
            self.epoch = self._take_over()
        return self.epoch

    def resign(self) -> None:
        """Let another one lead at once."""
        if self.epoch is not None:
            self._mine(self.epoch).update(expires_at=Now())
            self.epoch = None

    def _mine(self, epoch: int) -> QuerySet[SchedulerLease]:
        return SchedulerLease.objects.filter(pk=1, epoch=epoch, holder=self._holder)

    def _extend(self, epoch: int, spent: Spent | None) -> bool:
        counted: dict[str, Any] = {}
        if spent is not None:
            counted = {
                "decided_at": spent.decided_at,
                "cycles": F("cycles") + 1,
                "cycles_seconds": F("cycles_seconds") + spent.seconds,
            }
        # An expired lease that nobody has taken over is still ours: the epoch says so.
        return self._mine(epoch).update(expires_at=_expiry(), **counted) == 1

    @transaction.atomic
    def _take_over(self) -> int | None:
        SchedulerLease.objects.get_or_create(pk=1)
        expired = SchedulerLease.objects.filter(pk=1).filter(Q(expires_at__isnull=True) | Q(expires_at__lte=Now()))
        taken = expired.update(epoch=F("epoch") + 1, holder=self._holder, expires_at=_expiry())
        return SchedulerLease.objects.values_list("epoch", flat=True).get(pk=1) if taken else None


def _expiry() -> Combinable:
    return Now() + timedelta(seconds=LEASE_SECONDS)
