"""Pages of the templates: code that models are made of."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from core.errors import UserError
from core.formfields import show_error
from core.pages import done, login_user, or_404, page_of
from core.sources import Source, Upload
from models_registry.actions import TemplateAddition, add_template, delete_template, take_again
from models_registry.code import inspect_code
from models_registry.forms import LocationForm
from models_registry.models import ModelTemplate
from models_registry.queries import code_files, has_changed, shown_file, templates

__all__ = [
    "template_add",
    "template_choice",
    "template_delete",
    "template_detail",
    "template_list",
    "template_take_again",
]

LIST_CRUMB = ("Models", "/models/")
_TEMPLATES_CRUMB = ("Templates", "/models/templates/")


@require_safe
def template_list(request: HttpRequest) -> HttpResponse:
    page = page_of(request, templates().order_by("name"))
    context = {"section": "models", "crumbs": [LIST_CRUMB, ("Templates", None)], "page": page}
    return render(request, "models_registry/templates.html", context)


@require_safe
def template_choice(request: HttpRequest) -> HttpResponse:
    """New: which template, or a new location. `Next` comes back with the number of the chosen one."""
    chosen = request.GET.get("template", "")
    if chosen.isascii() and chosen.isdecimal() and len(chosen) < 19:
        return redirect("models:add", int(chosen))
    page = page_of(request, templates().order_by("-taken_at"))
    context = {"section": "models", "crumbs": [LIST_CRUMB, ("New model", None)], "page": page}
    return render(request, "models_registry/new.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
def template_add(request: HttpRequest) -> HttpResponse:
    form = LocationForm(request.POST or None, request.FILES or None)
    if request.method == "POST" and form.is_valid():
        try:
            template = add_template(login_user(request), _addition(form))
        except UserError as error:
            show_error(form, error)
        else:
            messages.success(request, "Model template has been added.")
            return redirect("models:template", template.pk)
    context = {
        "section": "models",
        "crumbs": [LIST_CRUMB, _TEMPLATES_CRUMB, ("Add location", None)],
        "form": form,
        "roots": settings.TIDEPOOL_MODEL_ROOTS,
    }
    return render(request, "models_registry/add_location.html", context)


@require_safe
def template_detail(request: HttpRequest, template_id: int) -> HttpResponse:
    template = _template(template_id)
    context = {
        "section": "models",
        "crumbs": [LIST_CRUMB, _TEMPLATES_CRUMB, (template.name, None)],
        "template": template,
        "facts": inspect_code(template.folder, template.entry_point),
        "files": code_files(template.folder),
        "shown": shown_file(template.folder, request.GET.get("file", template.entry_point)),
        "changed": has_changed(template),
        "from_path": template.path != template.copy,
        "may_change": _may_change(request, template),
    }
    return render(request, "models_registry/template.html", context)


@require_POST
def template_take_again(request: HttpRequest, template_id: int) -> HttpResponse:
    template = _template(template_id)
    if done(request, lambda: take_again(template, login_user(request))):
        messages.success(request, "The files are taken over as they are now. Models made before keep theirs.")
    return redirect("models:template", template.pk)


@require_POST
def template_delete(request: HttpRequest, template_id: int) -> HttpResponse:
    template = _template(template_id)
    if not done(request, lambda: delete_template(template, login_user(request))):
        return redirect("models:template", template_id)
    messages.success(request, f"The template {template.name} is deleted. The folder that it came from stays.")
    return redirect("models:templates")


def _template(template_id: int) -> ModelTemplate:
    return or_404(templates().filter(pk=template_id).first())


def _may_change(request: HttpRequest, template: ModelTemplate) -> bool:
    user = login_user(request)
    return user.is_staff or template.owner_id == user.pk


def _addition(form: LocationForm) -> TemplateAddition:
    values = form.cleaned_data
    upload = Upload(values["file"].name, values["file"].file) if values["file"] else None
    return TemplateAddition(
        name=values["name"],
        source=Source(path=values["path"], upload=upload),
        entry_point=values["entry_point"],
        framework=values["framework"],
        description=values["description"],
    )
