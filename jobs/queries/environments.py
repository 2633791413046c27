"""Named environments that a user, or a training of an instance group, may use."""

from collections.abc import Iterable

from django.db.models import Count, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce

from core.errors import NotFound
from core.roles import Asking, is_cluster_admin
from core.text import by_reference
from jobs.models import InstanceGroup, Job, NamedEnvironment
from jobs.queries.groups import usable_groups

__all__ = ["find_visible_environment", "usable_environments", "visible_environments"]


def visible_environments(user: Asking) -> QuerySet[NamedEnvironment]:
    """Return the environments that the user's trainings may use, for administrators all; `trainings` counts theirs."""
    named = Job.objects.filter(named_environment=OuterRef("name")).order_by().values("named_environment")
    rows = (
        NamedEnvironment.objects.annotate(
            trainings=Coalesce(Subquery(named.annotate(count=Count("pk")).values("count")), 0)
        )
        .prefetch_related("groups", "default_of__group", "required__hosts__host")
        .select_related("required")
    )
    if is_cluster_admin(user):
        return rows
    return rows.filter(pk__in=_open_to(usable_groups(user)).values("pk"))


def find_visible_environment(user: Asking, reference: int | str) -> NamedEnvironment:
    """Return the environment with this name or id. Raises NotFound if there is none that the user may see."""
    row = by_reference(visible_environments(user), reference)
    if row is None:
        raise NotFound("This environment was not found: look it up on the page Environments.")
    return row


def usable_environments(groups: Iterable[InstanceGroup]) -> QuerySet[NamedEnvironment]:
    """Return the environments that trainings of any of these groups may use."""
    return _open_to(groups).order_by("name")


def _open_to(groups: Iterable[InstanceGroup]) -> QuerySet[NamedEnvironment]:
    wanted = [group.pk for group in groups]
    rows = NamedEnvironment.objects.filter(Q(groups=None) | Q(groups__in=wanted))
    return NamedEnvironment.objects.filter(pk__in=rows.values("pk"))
