"""Forms of our pages about MLflow's registry."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from core.errors import NotFound
from core.pages import done, login_user, or_404
from jobs.pages.queries import job_or_404
from models_registry.queries import models
from tracking import registry_actions, sharing
from tracking.models import ModelVersion

__all__ = ["alias", "register", "share", "take_over"]


@require_POST
def register(request: HttpRequest, job_id: int) -> HttpResponse:
    job = job_or_404(request.user, job_id)
    if done(request, lambda: registry_actions.register(job, login_user(request))):
        messages.success(request, "The training is being registered. Its version appears here in a few seconds.")
    return redirect(f"{reverse('jobs:detail', args=[job_id])}#results")


@require_POST
def alias(request: HttpRequest, version_id: int) -> HttpResponse:
    version, name = _version(request, version_id), request.POST.get("alias", "")
    if done(request, lambda: registry_actions.set_alias(version, name, remove="remove" in request.POST)):
        messages.success(request, f"{version} {'has lost' if 'remove' in request.POST else 'is now'} {name}.")
    return redirect(f"{reverse('models:detail', args=[version.job.model.model_id])}#lineage")


@require_POST
def take_over(request: HttpRequest, version_id: int) -> HttpResponse:
    version, uploads = _version(request, version_id), []
    if not done(request, lambda: uploads.append(registry_actions.take_over(version, login_user(request)))):
        return redirect(f"{reverse('models:detail', args=[version.job.model.model_id])}#lineage")
    messages.success(request, f"The weights of {version} are an upload of yours: trainings can start from them.")
    model = version.job.model.model_id
    return redirect(f"{reverse('jobs:train')}?model={model}&start_from=upload-{uploads[0].pk}")


@require_POST
def share(request: HttpRequest, model_id: int) -> HttpResponse:
    model = or_404(models(request.user).filter(pk=model_id).first())
    group, stops = request.POST.get("group", ""), "remove" in request.POST
    if done(request, lambda: sharing.share(login_user(request), model, group, stops=stops)):
        messages.success(request, "In a few seconds, MLflow applies the permissions of your trainings with this model.")
    return redirect(f"{reverse('models:detail', args=[model_id])}#lineage")


def _version(request: HttpRequest, version_id: int) -> ModelVersion:
    try:
        return registry_actions.find_version(login_user(request), version_id)
    except NotFound:
        return or_404(None)
