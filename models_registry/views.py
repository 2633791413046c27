"""Pages of the models."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from models_registry.actions import ModelRegistration, register
from models_registry.forms import ModelForm
from models_registry.queries import code_text, models, versions
from webapp.lib.errors import UserError
from webapp.lib.formfields import show_error
from webapp.lib.pages import login_user, or_404, page_of
from webapp.lib.sources import Source, Upload

__all__ = ["model_detail", "model_list", "model_new"]

LIST_CRUMB = ("Models", "/models/")


@require_safe
def model_list(request: HttpRequest) -> HttpResponse:
    page = page_of(request, models().order_by("name"))
    context = {"section": "models", "crumbs": [("Models", None)], "page": page}
    return render(request, "models_registry/list.html", context)


@require_safe
def model_detail(request: HttpRequest, model_id: int) -> HttpResponse:
    model = or_404(models().filter(pk=model_id).first())
    history = list(versions(model))
    context = {
        "section": "models",
        "crumbs": [LIST_CRUMB, (model.name, None)],
        "model": model,
        "versions": history,
        "newest": history[0],
        "code": code_text(history[0]),
    }
    return render(request, "models_registry/detail.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
def model_new(request: HttpRequest) -> HttpResponse:
    form = ModelForm(request.POST or None, request.FILES or None)
    if request.method == "POST" and form.is_valid():
        try:
            version = register(login_user(request), _registration(form))
        except UserError as error:
            show_error(form, error)
        else:
            messages.success(request, f"The model {version.model.name} is registered: it can be trained now.")
            return redirect("models:detail", version.model_id)
    context = {
        "section": "models",
        "crumbs": [LIST_CRUMB, ("New model", None)],
        "form": form,
        "roots": settings.TIDEPOOL_MODEL_ROOTS,
    }
    return render(request, "models_registry/new.html", context)


def _registration(form: ModelForm) -> ModelRegistration:
    values = form.cleaned_data
    upload = Upload(values["file"].name, values["file"].file) if values["file"] else None
    return ModelRegistration(
        name=values["name"],
        source=Source(path=values["path"], upload=upload),
        entry_point=values["entry_point"],
        framework=values["framework"],
        engine=values["engine"],
        default_dataset=values["dataset"],
        parameters=values["parameters"],
        description=values["description"],
    )
