"""The button of a job's page that takes the stacks of its ranks."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST

from core.errors import UserError
from core.pages import done, login_user
from insights.stacks.answers import stacks_of
from jobs.actions.stacks import request_stacks
from jobs.pages.queries import job_or_404

__all__ = ["take_stacks"]


@require_POST
def take_stacks(request: HttpRequest, job_id: int) -> HttpResponse:
    """Take the stacks, and show the part of the page that follows them; without scripts, the page."""
    job, user = job_or_404(request.user, job_id), login_user(request)
    if "HX-Request" not in request.headers:
        done(request, lambda: request_stacks(job.pk, user.get_username()))
        return redirect(f"{reverse('jobs:detail', args=[job.pk])}#ranks")
    problem = ""
    try:
        request_stacks(job.pk, user.get_username())
    except UserError as error:
        problem = error.message
    job = job_or_404(request.user, job_id)
    return render(request, "insights/job/_stacks.html", {"job": job, "stacks": stacks_of(job), "problem": problem})
