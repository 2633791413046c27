"""The page of all checkpoints, and its buttons."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST, require_safe

from core.errors import UserError
from core.keyset import KeysetPage
from core.pages import PAGE_SIZE, login_user, or_404
from jobs.actions.checkpoints import change_kept
from jobs.actions.model_versions import make_version
from jobs.models import Checkpoint
from jobs.queries.checkpoints import CheckpointFilter, checkpoint_page, totals, visible_checkpoints

__all__ = ["checkpoint_keep", "checkpoint_version", "checkpoints"]

_LABELS = {"job": "Training", "owner": "Owner", "model": "Model", "kept": "Kept", "metric": "Metric"}
_KEPT = (("", "All"), ("yes", "Kept"), ("no", "Not kept"))
_MOST_NAMES = 200


@require_safe
def checkpoints(request: HttpRequest) -> HttpResponse:
    user, given = login_user(request), request.GET.dict()
    wanted, page = CheckpointFilter(), KeysetPage[Checkpoint]([], None, None)
    problems: dict[str, list[str]] = {}
    try:
        wanted = CheckpointFilter(given)
        page = checkpoint_page(user, wanted, given, PAGE_SIZE)
    except UserError as error:
        problems = error.fields
    context: dict[str, Any] = {
        "section": "checkpoints",
        "crumbs": [("Checkpoints", None)],
        "given": given,
        "wanted": wanted,
        "page": page,
        "kept_choices": _KEPT,
        "metric": wanted.shown_metric,
        "metrics": _metrics(page.rows),
        "totals": totals(user),
        "problems": [(name, _LABELS.get(name), sentence) for name, said in problems.items() for sentence in said],
    }
    return render(request, "insights/checkpoints/page.html", context, status=400 if problems else 200)


def _metrics(rows: list[Checkpoint]) -> list[str]:
    """Return the metrics' names of the trainings on this page."""
    return sorted({name for row in rows for name in row.job.run.final_metrics})[:_MOST_NAMES]


@require_POST
def checkpoint_keep(request: HttpRequest, checkpoint_id: int) -> HttpResponse:
    """Keep the checkpoint if `kept` is "yes", otherwise stop keeping it, and redirect to `next`."""
    user = login_user(request)
    row = or_404(visible_checkpoints(user).filter(pk=checkpoint_id).first())
    kept = request.POST.get("kept") == "yes"
    try:
        now = change_kept(row, kept, user.get_username())
    except UserError as error:
        messages.error(request, error.message)
    else:
        messages.success(request, _said(row, kept, is_gone=now is None))
    return _back(request)


def _back(request: HttpRequest) -> HttpResponse:
    target = request.POST.get("next", "")
    # `redirect` would take any word for the name of an address.
    is_ours = target.startswith("/") and url_has_allowed_host_and_scheme(target, allowed_hosts=None)
    return HttpResponseRedirect(target) if is_ours else redirect("checkpoints")


@require_POST
def checkpoint_version(request: HttpRequest, checkpoint_id: int) -> HttpResponse:
    """Register the checkpoint as a version of a model, and redirect to that model's page."""
    user = login_user(request)
    row = or_404(visible_checkpoints(user).filter(pk=checkpoint_id).first())
    try:
        made = make_version(row, user)
    except UserError as error:
        messages.error(request, error.message)
        return _back(request)
    messages.success(request, f"{made} was created with the weights of {row.job.name} at step {row.step}.")
    return redirect(f"{reverse('models:detail', args=[made.version.model_id])}#versions")


def _said(row: Checkpoint, kept: bool, *, is_gone: bool) -> str:
    if kept:
        return f"The checkpoint of {row.job.name} at step {row.step} is kept, even when newer ones are written."
    if is_gone:
        return f"The checkpoint of {row.job.name} at step {row.step} was removed: newer ones have replaced it."
    return f"The checkpoint of {row.job.name} at step {row.step} will be removed when newer ones replace it."
