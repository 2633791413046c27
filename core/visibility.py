"""The only rule that decides who may read a shared row.

For everybody else, the row does not exist. Users who may read a model may train and clone it, because both give them
its code. Their trainings stay theirs, with the submitted code, whatever the model's owner chooses later.
"""

from typing import TypeVar

from django.contrib.auth.models import User
from django.db.models import Model, Q, QuerySet, TextChoices

from core.roles import Asking, is_cluster_admin

__all__ = ["Readers", "readable"]

#: Row with an `owner` and `readers`.
Row = TypeVar("Row", bound=Model)


class Readers(TextChoices):
    """Audience of a row, in addition to its owner and administrators."""

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
