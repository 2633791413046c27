"""Figures of the GPUs' use over time, which the pages of a training and of the cluster fetch."""

from django.http import HttpRequest, JsonResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from insights.gpu_use import cluster_use, job_use, use_figure
from insights.pages.cluster.views import minutes_of
from jobs.pages.queries import job_or_404

__all__ = ["cluster_gpus", "job_gpus"]


@require_safe
def job_gpus(request: HttpRequest, job_id: int) -> JsonResponse:
    return JsonResponse(use_figure(job_use(job_or_404(request.user, job_id), timezone.now())))


@require_safe
def cluster_gpus(request: HttpRequest) -> JsonResponse:
    """Return the figure of the window `?minutes=`."""
    return JsonResponse(use_figure(cluster_use(timezone.now(), minutes_of(request))))
