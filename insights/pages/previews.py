"""Previews while somebody fills in Train or changes a training."""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_POST

from core.edit_forms import show_conflict
from core.edits import EditConflict, merge
from core.errors import UserError
from core.pages import login_user, misfits, show_error
from insights.previews import preview_change, preview_checked
from jobs.actions import JobChange
from jobs.actions.job_commands import change_authors, changeable_values
from jobs.pages.queries import job_or_404
from jobs.pages.train.forms import ChangeForm, TrainForm, change_words
from jobs.pages.train.views import checked_submission, posted_form

__all__ = ["job_change_preview", "train_preview"]


@require_POST
def train_preview(request: HttpRequest) -> JsonResponse:
    """Preview the effects of the Train form as filled in now."""
    posted, user = posted_form(request), login_user(request)
    form = posted.form

    def answer() -> dict[str, Any]:
        seen = preview_checked(checked_submission(form.cleaned_data, posted.clone, user), user)
        return seen | {"sweep_text": _sweep_text(form.cleaned_data["sweep"])}

    return _preview(form, answer)


@require_POST
def job_change_preview(request: HttpRequest, job_id: int) -> JsonResponse:
    """Preview the form's entries over the present values, and say which of these others have changed meanwhile."""
    job = job_or_404(request.user, job_id)
    form, user = ChangeForm(request.POST), login_user(request)

    def answer() -> dict[str, Any]:
        present = changeable_values(job)
        merged = merge(form.seen().before, JobChange(**form.cleaned_data).given, present)
        seen = preview_change(job, JobChange(**merged.wanted), user)
        if merged.clashes:
            conflict = EditConflict(merged, present, change_authors(job))
            show_conflict(form, conflict, change_words, viewer=user.get_username())
        return seen

    return _preview(form, answer)


def _sweep_text(sweep: Mapping[str, Sequence[Any]]) -> str:
    """Return the sentence about parameters with several values; "": there are none."""
    if not sweep:
        return ""
    counts = ", ".join(f"{len(values)} of {name}" for name, values in sweep.items())
    return (
        f"{prod(map(len, sweep.values()))} trainings, one for each combination of values ({counts}), as a study that "
        "counts as one training. What follows is about the first of them."
    )


def _preview(form: TrainForm | ChangeForm, answer: Callable[[], dict[str, Any]]) -> JsonResponse:
    """Return the preview, or the form's errors with status 200, because the user is still typing."""
    if form.is_valid():
        try:
            return JsonResponse({"preview": answer(), **misfits(form)})
        except UserError as error:
            show_error(form, error)
    return JsonResponse(misfits(form))
