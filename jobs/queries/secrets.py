"""Secrets that a user's trainings may get, and the trainings that get them. None of these queries opens a value."""

from collections.abc import Iterable

from django.contrib.auth.models import User
from django.db.models import Count, Q, QuerySet

from core.errors import NotFound
from core.roles import Asking, is_cluster_admin, may_change
from jobs.models import InstanceGroup, Job, Secret
from jobs.queries.groups import usable_groups
from jobs.queries.jobs import visible_jobs
from jobs.states import TERMINAL
from workers.models import Host

__all__ = [
    "administered_groups",
    "find_visible_secret",
    "may_change_secret",
    "secret_names",
    "trainings_with",
    "unfinished_with",
    "visible_secrets",
    "who_else_reads",
]

_MOST_HOSTS = 5


def visible_secrets(user: Asking) -> QuerySet[Secret]:
    """Return the user's secrets and those of groups that they may submit to or administer, for administrators of all
    groups; `trainings` counts the trainings that get them."""
    groups = InstanceGroup.objects.all()
    if not is_cluster_admin(user):
        usable = [group.pk for group in usable_groups(user)]
        groups = groups.filter(Q(pk__in=usable) | Q(admins=user.pk))
    rows = Secret.objects.filter(Q(owner_id=user.pk) | Q(group__in=groups.values("pk")))
    return rows.select_related("owner", "group").annotate(trainings=Count("uses", distinct=True))


def find_visible_secret(user: Asking, secret_id: int) -> Secret:
    """Raises NotFound if there is no such secret that the user may see."""
    row = visible_secrets(user).filter(pk=secret_id).first()
    if row is None:
        raise NotFound("This secret was not found: look it up on the page Secrets.")
    return row


def administered_groups(user: Asking) -> QuerySet[InstanceGroup]:
    """Return the instance groups whose secrets the user may add, replace and delete."""
    groups = InstanceGroup.objects.order_by("name")
    if is_cluster_admin(user):
        return groups
    return groups.filter(admins=user.pk) if may_change(user) else groups.none()


def may_change_secret(user: Asking, secret: Secret) -> bool:
    if secret.owner_id is not None:
        return secret.owner_id == user.pk and may_change(user)
    return secret.group in administered_groups(user)


def secret_names(user: User, groups: Iterable[InstanceGroup]) -> list[str]:
    """Return the names of the secrets that the user's trainings in these groups may get, each once."""
    rows = Secret.objects.filter(Q(owner=user) | Q(group__in=[group.pk for group in groups]))
    return list(rows.order_by("name").values_list("name", flat=True).distinct())


def who_else_reads() -> str:
    """Return a sentence on who else could read the secrets of trainings; "" if walls keep them from others."""
    open_hosts = Host.objects.filter(isolation=Host.Isolation.SHARED).exclude(state=Host.State.OFFLINE)
    names = list(open_hosts.order_by("name").values_list("name", flat=True))
    if not names:
        return ""
    shown = ", ".join(names[:_MOST_HOSTS]) + (" and others" if len(names) > _MOST_HOSTS else "")
    return (
        f"Trainings are not kept apart on {shown} (TIDEPOOL_ISOLATION=shared): everybody who may submit trainings "
        "could read the secrets of a training that runs there."
    )


def trainings_with(secret: Secret, user: Asking) -> QuerySet[Job]:
    """Return the trainings with the secret that the user may see, the newest first."""
    return visible_jobs(user).filter(secret_uses__secret=secret).order_by("-pk")


def unfinished_with(secret: Secret) -> QuerySet[Job]:
    """Return the trainings that wait or run and get the secret at their next start."""
    return Job.objects.filter(secret_uses__secret=secret).exclude(state__in=sorted(TERMINAL)).order_by("pk")
