"""The rule for reading usage by name. Everybody reads the cluster's sums; of people and their trainings one's own.

Who administers an instance group reads the names of its members and of the trainings in it, cluster admins all.
"""

from __future__ import annotations

from collections.abc import Collection

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User
from django.db.models import Q, QuerySet

from jobs.models import InstanceGroup, Job, UsageBucket

__all__ = ["named", "readable_jobs"]

Viewer = AbstractBaseUser | AnonymousUser
Dimension = UsageBucket.Dimension


def readable_jobs(viewer: Viewer) -> QuerySet[Job]:
    administered = InstanceGroup.objects.filter(admins=viewer.pk)
    return Job.objects.filter(Q(owner=viewer.pk) | Q(instance_group__in=administered)).order_by()


def named(viewer: Viewer, dimension: int) -> Collection[int] | None:
    """The numbers of users or jobs that the viewer may read the names of; None: all."""
    if getattr(viewer, "is_staff", False) or dimension not in (Dimension.USER, Dimension.JOB):
        return None
    if dimension == Dimension.JOB:
        return readable_jobs(viewer).values_list("pk", flat=True)
    members = Q(instance_groups__admins=viewer.pk) | Q(jobs__instance_group__admins=viewer.pk)
    return User.objects.filter(Q(pk=viewer.pk) | members).order_by().values_list("pk", flat=True).distinct()
