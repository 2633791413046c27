"""The page that previews a result file, and its picture."""

from django.http import FileResponse, Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from core.errors import NotFound
from jobs.files.file_preview import file_preview, open_picture
from jobs.pages.crumbs import LIST_CRUMB
from jobs.pages.queries import job_or_404

__all__ = ["job_file", "job_picture"]


@require_safe
def job_file(request: HttpRequest, job_id: int) -> HttpResponse:
    """Show the beginning of the file `?path=`."""
    job = job_or_404(request.user, job_id)
    try:
        preview = file_preview(job, request.GET.get("path", ""))
    except NotFound as error:
        raise Http404(error.message) from error
    page = reverse("jobs:detail", args=[job.pk])
    crumbs = [LIST_CRUMB, (job.name, page), (preview.path, None)]
    return render(request, "jobs/job/file.html", {"section": "jobs", "crumbs": crumbs, "job": job, "file": preview})


@require_safe
def job_picture(request: HttpRequest, job_id: int) -> FileResponse:
    """Send the picture `?path=` for display."""
    job = job_or_404(request.user, job_id)
    try:
        stream, kind = open_picture(job, request.GET.get("path", ""))
    except NotFound as error:
        raise Http404(error.message) from error
    return FileResponse(stream, content_type=kind)
