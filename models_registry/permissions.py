"""The rule for who may read code: the one place where it stands.

Who may read a model may train and clone it, as both give them its code; for everybody else it does not exist. What
somebody has trained stays theirs, with the code as it was submitted, whatever the model's owner chooses later.
"""

from typing import TypeVar

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet

from core.roles import Asking, is_cluster_admin
from models_registry.models import ModelTemplate, Readers, RegisteredModel

__all__ = ["readable"]

Row = TypeVar("Row", RegisteredModel, ModelTemplate)


def readable(rows: QuerySet[Row], user: Asking) -> QuerySet[Row]:
    """Return those of the rows whose code the user may read; administrators of the cluster may read all."""
    if is_cluster_admin(user):
        return rows
    colleagues = User.objects.filter(instance_groups__members=user.pk)
    return rows.filter(
        Q(readers=Readers.EVERYBODY) | Q(owner_id=user.pk) | Q(readers=Readers.GROUP, owner__in=colleagues)
    )
