"""The buttons of a job's page that have a rank recorded."""

from typing import Any, get_args

from django import forms
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST
from tidepool.protocol import RecordingKind

from core.errors import UserError, field_error
from core.pages import done, login_user
from insights.recordings.page import recordings_part
from jobs.actions.recordings import request_recording
from jobs.models import Job
from jobs.pages.queries import job_or_404

__all__ = ["record"]


class _RecordingForm(forms.Form):
    rank = forms.IntegerField(min_value=0, max_value=2**31 - 1)
    amount = forms.IntegerField(max_value=2**31 - 1)
    native = forms.BooleanField(required=False)


@require_POST
def record(request: HttpRequest, job_id: int, kind: RecordingKind) -> HttpResponse:
    """Have a rank recorded, and show the part of the page that follows it; without scripts, the page."""
    if kind not in get_args(RecordingKind):
        raise Http404
    job, actor = job_or_404(request.user, job_id), login_user(request).get_username()
    if "HX-Request" not in request.headers:
        done(request, lambda: _request(job, actor, kind, request.POST))
        return redirect(f"{reverse('jobs:detail', args=[job.pk])}#why-slow")
    problem = ""
    try:
        _request(job, actor, kind, request.POST)
    except UserError as error:
        problem = error.message
    job = job_or_404(request.user, job_id)
    context = {"job": job, "problem": problem, "problem_of": kind, **recordings_part(job)}
    return render(request, "insights/job/_recordings.html", context)


def _request(job: Job, actor: str, kind: RecordingKind, given: Any) -> None:
    form = _RecordingForm(given)
    if not form.is_valid():
        raise field_error("rank", "Give the number of a rank, such as 0, and a whole number of seconds or steps.")
    values = form.cleaned_data
    native = kind == "flame" and values["native"]
    request_recording(job.pk, actor, kind, values["rank"], values["amount"], native=native)
