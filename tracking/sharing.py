"""Experiments that their owners share with an instance group: members may read them, as long as they are members."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import QuerySet

from core.errors import Conflict, field_error
from core.roles import is_cluster_admin
from core.text import whole
from jobs.models import InstanceGroup
from models_registry.models import RegisteredModel
from tracking.models import ExperimentReader, ExperimentShare, TrackedRun
from tracking.upstream import MlflowServer, Refused

__all__ = ["Sharing", "keep_readers", "share", "sharing_of"]

_MISSING = "RESOURCE_DOES_NOT_EXIST"


@dataclass(frozen=True)
class Sharing:
    shares: Sequence[ExperimentShare]
    #: With which it can be shared beside those.
    groups: Sequence[InstanceGroup]


def sharing_of(user: User, model: RegisteredModel) -> Sharing:
    """Return the groups that the user's own experiment of a model is shared with, and those it could be shared with."""
    shares = list(ExperimentShare.objects.filter(owner=user, model=model).select_related("group").order_by("group"))
    groups = _own_groups(user).exclude(pk__in=[each.group_id for each in shares])
    return Sharing(shares, list(groups.order_by("name")))


def _own_groups(user: User) -> QuerySet[InstanceGroup]:
    return InstanceGroup.objects.filter(members=user)


def share(user: User, model: RegisteredModel, group: str, *, stops: bool = False) -> None:
    """Let the members of a group of the user's read the user's runs with the model, or do so no longer."""
    if not settings.TIDEPOOL_MLFLOW_SOCKET:
        raise Conflict("This site has no MLflow.")
    if stops:
        ExperimentShare.objects.filter(owner=user, model=model, group=whole(group)).delete()
        return
    found = _own_groups(user).filter(pk=whole(group) or 0).first()
    if found is None:
        raise field_error("group", "Choose an instance group that you are a member of.")
    ExperimentShare.objects.get_or_create(owner=user, model=model, group=found)


def keep_readers(server: MlflowServer) -> None:
    """Tell MLflow who may read by now, and who may not any more. Raises Away, Refused."""
    wanted = _wanted()
    there = {(row.experiment_id, row.user_id): row for row in ExperimentReader.objects.select_related("user")}
    users = {user.pk: user for user in User.objects.filter(pk__in={user for _, user in wanted - there.keys()})}
    for experiment, number in sorted(wanted - there.keys()):
        user = users[number]
        server.introduce(user.get_username(), is_admin=is_cluster_admin(user))
        server.post_for_all("users/permissions/grant", {**_about(user, experiment), "permission": "READ"})
        ExperimentReader.objects.create(experiment_id=experiment, user=user)
    for key in sorted(there.keys() - wanted):
        try:
            server.post_for_all("users/permissions/revoke", _about(there[key].user, key[0]))
        except Refused as error:
            if error.code != _MISSING:
                raise
        there[key].delete()


def _wanted() -> set[tuple[str, int]]:
    """(experiment, user)."""
    wanted = set()
    for share in ExperimentShare.objects.prefetch_related("group__members"):
        runs = TrackedRun.objects.filter(job__owner=share.owner_id, job__model__model=share.model_id)
        experiments = set(runs.values_list("experiment_id", flat=True))
        members = {user.pk for user in share.group.members.all() if user.is_active} - {share.owner_id}
        wanted |= {(experiment, member) for experiment in experiments for member in members}
    return wanted


def _about(user: User, experiment: str) -> dict[str, str]:
    return {"username": user.get_username(), "resource_type": "experiment", "resource_id": experiment}
