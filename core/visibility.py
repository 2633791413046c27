"""The rule for who may read what somebody shares: the one place where it stands.

For who may not read a row, it does not exist. Who may read a model may train and clone it, as both give them its code.
What somebody has trained stays theirs, with the code as it was submitted, whatever the model's owner chooses later.
"""

from typing import TypeVar

from django.contrib.auth.models import User
from django.db.models import Model, Q, QuerySet, TextChoices

from core.roles import Asking, is_cluster_admin

__all__ = ["Readers", "readable"]

#: Each has an `owner` and `readers`.
Row = TypeVar("Row", bound=Model)


class Readers(TextChoices):
    """Audience of a row beside its owner and administrators."""

    EVERYBODY = "everybody", "Everybody"
    GROUP = "group", "Members of the owner's instance groups"
    OWNER = "owner", "Only the owner"


def readable(rows: QuerySet[Row], user: Asking) -> QuerySet[Row]:
    """Return those of the rows that the user may read; administrators of the cluster may read all."""
    if is_cluster_admin(user):
        return rows
    colleagues = User.objects.filter(instance_groups__members=user.pk)
    return rows.filter(
        Q(readers=Readers.EVERYBODY) | Q(owner_id=user.pk) | Q(readers=Readers.GROUP, owner__in=colleagues)
    )
