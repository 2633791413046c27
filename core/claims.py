"""Claims on rows: a worker that works on a row holds it for a while, so that no other worker works on the same row.

A claim is a random token in the row and the time at which the claim expires. Work that takes longer renews its claim.
The claim of a worker that died stays until it expires; then another worker claims the row under a token of its own.
Each write under a claim is a conditional update, so that nothing is stored by a worker whose claim another one holds.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from django.db import models
from django.db.models import Q, QuerySet

__all__ = ["Claim", "ClaimLost", "Claimable", "Claims"]

#: Number of rows that `claim_first` tries, because others claim rows at the same time.
_MAX_ATTEMPTS = 5


class Claimable(models.Model):
    """Base of rows that workers claim."""

    #: Token of the claim; "" if no worker holds the row.
    claim = models.CharField(max_length=32, blank=True, default="")
    claimed_until = models.DateTimeField(null=True)

    class Meta:
        abstract = True


class ClaimLost(Exception):
    """Another worker has claimed the row, or the row is gone."""


Row = TypeVar("Row", bound=Claimable)


@dataclass(frozen=True)
class Claim(Generic[Row]):
    """A claim that was made, with the row as it was then."""

    row: Row
    token: str


@dataclass(frozen=True)
class Claims(Generic[Row]):
    """Makes, renews and releases claims on the rows of one model."""

    model: type[Row]
    #: Duration of a claim that is not renewed.
    duration: timedelta
    #: Columns of a row that waits for a worker.
    waiting: Mapping[str, Any]
    #: Columns that a claimed row has instead.
    working: Mapping[str, Any] = field(default_factory=dict)
    #: Foreign keys that are read together with a claimed row.
    related: tuple[str, ...] = ()

    def free(self, now: datetime) -> QuerySet[Row]:
        """Return the rows that wait and those whose claim has expired, the oldest first."""
        expired = Q(**self.working, claimed_until__lt=now)
        return self.model._default_manager.filter(Q(**self.waiting) | expired).order_by("pk")

    def claim_first(self, rows: QuerySet[Row], now: datetime, **columns: Any) -> Claim[Row] | None:
        """Claim the first of these rows, a subset of `free`; return None if there is none left.

        `columns` are written together with the claim.
        """
        for pk in rows.values_list("pk", flat=True)[:_MAX_ATTEMPTS]:
            if (claim := self.claim(pk, now, **columns)) is not None:
                return claim
        return None

    def claim(self, pk: Any, now: datetime, *, only: Q | None = None, **columns: Any) -> Claim[Row] | None:
        """Claim the row with this key if it is free and matches `only`; otherwise return None.

        `only` must refer to the row's own columns: conditions on other tables are not evaluated again after the
        update has waited for that of another worker.
        """
        token = secrets.token_hex(8)
        free = self.free(now).order_by().filter(only or Q(), pk=pk)
        values = {**self.working, **columns, "claim": token, "claimed_until": now + self.duration}
        if not free.update(**values):
            return None
        row = self.model._default_manager.select_related(*self.related).filter(pk=pk, claim=token).first()
        return None if row is None else Claim(row, token)

    def renew(self, claim: Claim[Row], now: datetime, /, **columns: Any) -> None:
        """Hold the row for another `duration`, and write `columns`. Raises ClaimLost."""
        self.write(claim, claimed_until=now + self.duration, **columns)

    def release(self, claim: Claim[Row], /, **columns: Any) -> None:
        """Let the row wait again: the next worker claims it at once. Raises ClaimLost."""
        self.finish(claim, **{**self.waiting, **columns})

    def finish(self, claim: Claim[Row], /, **columns: Any) -> None:
        """End the claim, and write `columns` as the result of the work. Raises ClaimLost."""
        self.write(claim, **{**columns, "claim": "", "claimed_until": None})

    def write(self, claim: Claim[Row], /, **columns: Any) -> None:
        """Write `columns` under the claim. Raises ClaimLost."""
        held = self.model._default_manager.filter(pk=claim.row.pk, claim=claim.token)
        if not held.update(**columns):
            name = self.model._meta.verbose_name
            raise ClaimLost(f"The {name} {claim.row.pk} is claimed by another worker, or was removed.")
