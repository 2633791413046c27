"""Labels of those who used GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.contrib.auth.models import User

from jobs.models import InstanceGroup, Job, UsageBucket

__all__ = ["UNKNOWN_MODEL", "labels_of"]

#: Of a device whose host did not say what it is.
UNKNOWN_MODEL = "unknown GPU"
Dimension = UsageBucket.Dimension
#: SQLite takes no more values in one question.
_MOST = 30_000


def labels_of(dimension: int, subjects: Sequence[int | str]) -> Mapping[int | str, str]:
    if dimension in (Dimension.HOST, Dimension.GPU_MODEL):
        return {subject: str(subject) or UNKNOWN_MODEL for subject in subjects}
    found: dict[int, str] = {}
    for start in range(0, len(subjects), _MOST):
        found |= _names(dimension, subjects[start : start + _MOST])
    return {subject: found.get(int(subject), f"number {subject}") for subject in subjects}


def _names(dimension: int, subjects: Sequence[int | str]) -> dict[int, str]:
    if dimension == Dimension.USER:
        return dict(User.objects.filter(pk__in=subjects).values_list("pk", "username"))
    if dimension == Dimension.GROUP:
        return dict(InstanceGroup.objects.filter(pk__in=subjects).values_list("pk", "name"))
    return dict(Job.objects.filter(pk__in=subjects).order_by().values_list("pk", "name"))
