"""Pages of models and templates."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from core.archive import ARCHIVE_SUFFIXES
from core.edit_forms import seen_field
from core.file_sources import given_source
from core.files_api import upload_field
from core.keyset import Order
from core.pages import carried_out, done, login_user, or_404, page_of
from core.roles import may_edit
from core.text import whole
from core.time import parsed_moment
from core.uploads import taken
from core.visibility import Readers
from models_registry import actions
from models_registry.actions import ModelRegistration, TemplateAddition
from models_registry.code_inspection import CodeFacts, inspect_code
from models_registry.forms import LocationForm, ModelForm, initial_of
from models_registry.model_settings import setting_uses
from models_registry.models import ModelTemplate, RegisteredModel, RegisteredModelVersion
from models_registry.queries import (
    changed_files,
    changed_values,
    code_files,
    find_version,
    has_changed,
    models,
    shown_file,
    templates,
    versions,
)

__all__ = [
    "model_add",
    "model_change",
    "model_clone",
    "model_compare",
    "model_delete",
    "model_detail",
    "model_list",
    "model_readers",
    "template_add",
    "template_choice",
    "template_delete",
    "template_detail",
    "template_list",
    "template_readers",
    "template_take_again",
]

LIST_CRUMB = ("Models", "/models/")
_TEMPLATES_CRUMB = ("Templates", "/models/templates/")
_KEEP = "keep"


@require_safe
def model_list(request: HttpRequest) -> HttpResponse:
    page = page_of(request, models(request.user), Order("name"))
    context = {"section": "models", "crumbs": [("Models", None)], "page": page}
    return render(request, "models_registry/list.html", context)


@require_safe
def model_detail(request: HttpRequest, model_id: int) -> HttpResponse:
    """Show a model. `?version=` selects an older version, `?file=` another file than the entry point."""
    model = _model(request, model_id)
    history = list(versions(model))
    number = request.GET.get("version", "")
    shown = next((each for each in history if str(each.number) == number), history[0])
    facts = inspect_code(shown.folder, shown.entry_point)
    context = {
        "section": "models",
        "crumbs": [LIST_CRUMB, (model.name, None)],
        "model": model,
        "versions": history,
        "history": list(zip_longest(history, [each.number for each in history[1:]])),
        "version": shown,
        "facts": facts,
        "settings": setting_uses(shown.settings, facts.arguments),
        "files": code_files(shown.folder),
        "shown": shown_file(shown.folder, request.GET.get("file", shown.entry_point)),
        "may_change": may_edit(login_user(request), model),
        "readers": Readers.choices,
        "read_templates": set(templates(request.user).filter(model_versions__model=model).values_list("pk", flat=True)),
    }
    return render(request, "models_registry/detail.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
def model_add(request: HttpRequest, template_id: int) -> HttpResponse:
    """Add a model with a template's code."""
    template = _template(request, template_id)
    facts = inspect_code(template.folder, template.entry_point)
    engine = RegisteredModelVersion.Engine.ELASTIC if facts.elastic else RegisteredModelVersion.Engine.SINGLE
    initial = {"description": template.description, "engine": engine, "readers": template.readers}
    crumbs = [LIST_CRUMB, ("New model", "/models/new/"), (template.name, None)]
    return _model_form(request, template, facts, initial, crumbs=crumbs, title="Add model", button="Add")


@require_http_methods(["GET", "HEAD", "POST"])
def model_clone(request: HttpRequest, model_id: int) -> HttpResponse:
    """Add a model with code and settings of the newest version of another one."""
    model = _model(request, model_id)
    [newest] = model.latest  # type: ignore[attr-defined]  # see queries.models
    facts = inspect_code(newest.folder, newest.entry_point)
    initial = {**initial_of(newest, facts.arguments), "name": f"{model.name}-copy"}
    crumbs = [LIST_CRUMB, (model.name, f"/models/{model.pk}/"), ("Clone", None)]
    return _model_form(request, newest, facts, initial, crumbs=crumbs, title=f"Clone {model.name}", button="Add")


@require_http_methods(["GET", "HEAD", "POST"])
def model_change(request: HttpRequest, model_id: int) -> HttpResponse:
    """Add the next version, with other settings or the current code of a template."""
    model = _model(request, model_id)
    if not may_edit(login_user(request), model):
        messages.error(request, f"{model.name} belongs to {model.owner.get_username()}: clone it to change it.")
        return redirect("models:detail", model.pk)
    [newest] = model.latest  # type: ignore[attr-defined]  # see queries.models
    chosen = whole(request.POST.get("code", _KEEP))
    source = templates(request.user).filter(pk=chosen).first() if chosen else None
    code = source or newest
    facts = inspect_code(code.folder, code.entry_point)
    initial = {**initial_of(newest, facts.arguments), "name": model.name, "code": _KEEP}
    known = ((str(each.pk), f"Template {each.name}") for each in templates(request.user).order_by("name"))
    codes = [(_KEEP, f"Code of version {newest.number}"), *known]
    crumbs = [LIST_CRUMB, (model.name, f"/models/{model.pk}/"), ("New version", None)]
    words = {"title": f"New version of {model.name}", "button": "Add version"}
    return _model_form(request, code, facts, initial, codes, crumbs=crumbs, **words)


def _model_form(
    request: HttpRequest,
    code: ModelTemplate | RegisteredModelVersion,
    facts: CodeFacts,
    initial: dict[str, Any],
    codes: Sequence[tuple[str, str]] = (),
    **words: Any,
) -> HttpResponse:
    """Show the form of a model with this code, or register it. With `codes` to choose from, it is a next version."""
    data = request.POST if request.method == "POST" else None
    form = ModelForm(data, facts=facts, codes=codes, initial=initial)
    version = carried_out(request, form, lambda: actions.register(login_user(request), _registration(form, code)))
    if version is None:
        context = {"section": "models", "form": form, "facts": facts, "code": code, **words}
        return render(request, "models_registry/add.html", context)
    name, number = version.model.name, version.number
    if codes:
        messages.success(request, f"Version {number} has been added. Trainings use it from now on.")
    elif number > 1:
        messages.success(request, f"The model {name} already existed: version {number} has been added.")
    else:
        messages.success(request, f"The model {name} has been added. You can train it now.")
    return redirect("models:detail", version.model_id)


def _registration(form: ModelForm, code: ModelTemplate | RegisteredModelVersion) -> ModelRegistration:
    values = form.cleaned_data
    return ModelRegistration(
        name=values["name"],
        source=code,
        framework=code.framework,
        engine=values["engine"],
        default_dataset=values["dataset"],
        settings=form.chosen_settings(),
        parameters=values["parameters"],
        readers=values["readers"],
        description=values["description"],
    )


@require_safe
def model_compare(request: HttpRequest, model_id: int) -> HttpResponse:
    """Show the differences from version `old` to version `new`, by default those of the newest version."""
    model = _model(request, model_id)
    history = list(versions(model))
    new = _version_of(request, "new", model) or history[0]
    old = _version_of(request, "old", model) or (history[1] if len(history) > 1 else new)
    context = {
        "section": "models",
        "crumbs": [LIST_CRUMB, (model.name, f"/models/{model.pk}/"), ("Compare versions", None)],
        "model": model,
        "versions": history,
        "old": old,
        "new": new,
        "values": changed_values(old, new),
        "files": changed_files(old.folder, new.folder),
    }
    return render(request, "models_registry/compare.html", context)


@require_POST
def model_readers(request: HttpRequest, model_id: int) -> HttpResponse:
    return _readers_set(request, _model(request, model_id), "models:detail")


@require_POST
def model_delete(request: HttpRequest, model_id: int) -> HttpResponse:
    model = _model(request, model_id)
    if not done(request, lambda: actions.delete_model(model, login_user(request))):
        return redirect("models:detail", model_id)
    messages.success(request, f"The model {model.name} has been deleted.")
    return redirect("models:list")


@require_safe
def template_list(request: HttpRequest) -> HttpResponse:
    page = page_of(request, templates(request.user), Order("name"))
    context = {"section": "models", "crumbs": [LIST_CRUMB, ("Templates", None)], "page": page}
    return render(request, "models_registry/templates.html", context)


@require_safe
def template_choice(request: HttpRequest) -> HttpResponse:
    """Choose a template or a new location. `Next` returns here with the number of the chosen template."""
    if (chosen := whole(request.GET.get("template", ""))) is not None:
        return redirect("models:add", chosen)
    page = page_of(request, templates(request.user), Order("taken_at", descending=True, parse=parsed_moment))
    context = {"section": "models", "crumbs": [LIST_CRUMB, ("New model", None)], "page": page}
    return render(request, "models_registry/new.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
def template_add(request: HttpRequest) -> HttpResponse:
    form = LocationForm(request.POST or None, request.FILES or None)

    def add() -> ModelTemplate:
        values, user = dict(form.cleaned_data), login_user(request)
        path, file, upload = (values.pop(name) for name in ("path", "file", "upload"))
        if not upload:
            return actions.add_template(user, TemplateAddition(source=given_source(path, file), **values))
        with taken(user, upload) as source:
            return actions.add_template(user, TemplateAddition(source=replace(source, path=path), **values))

    if template := carried_out(request, form, add):
        messages.success(request, "Model template has been added.")
        return redirect("models:template", template.pk)
    context = {
        "section": "models",
        "crumbs": [LIST_CRUMB, _TEMPLATES_CRUMB, ("Add location", None)],
        "form": form,
        "roots": settings.TIDEPOOL_MODEL_ROOTS,
        "upload_field": upload_field(login_user(request), (*ARCHIVE_SUFFIXES, ".py")),
    }
    return render(request, "models_registry/add_location.html", context)


@require_safe
def template_detail(request: HttpRequest, template_id: int) -> HttpResponse:
    template = _template(request, template_id)
    context = {
        "section": "models",
        "crumbs": [LIST_CRUMB, _TEMPLATES_CRUMB, (template.name, None)],
        "template": template,
        "facts": inspect_code(template.folder, template.entry_point),
        "files": code_files(template.folder),
        "shown": shown_file(template.folder, request.GET.get("file", template.entry_point)),
        "changed": has_changed(template),
        "from_path": template.path != template.copy,
        "may_change": may_edit(login_user(request), template),
        "readers": Readers.choices,
    }
    return render(request, "models_registry/template.html", context)


@require_POST
def template_take_again(request: HttpRequest, template_id: int) -> HttpResponse:
    template = _template(request, template_id)
    if done(request, lambda: actions.take_again(template, login_user(request))):
        messages.success(request, "The template has been updated. Existing models keep their files.")
    return redirect("models:template", template.pk)


@require_POST
def template_readers(request: HttpRequest, template_id: int) -> HttpResponse:
    return _readers_set(request, _template(request, template_id), "models:template")


@require_POST
def template_delete(request: HttpRequest, template_id: int) -> HttpResponse:
    template = _template(request, template_id)
    if not done(request, lambda: actions.delete_template(template, login_user(request))):
        return redirect("models:template", template_id)
    messages.success(request, f"The template {template.name} has been deleted. The original folder is kept.")
    return redirect("models:templates")


def _readers_set(request: HttpRequest, row: RegisteredModel | ModelTemplate, page: str) -> HttpResponse:
    readers, seen = request.POST.get("readers", ""), seen_field(request.POST, "readers")
    if done(request, lambda: actions.set_readers(row, readers, login_user(request), seen)):
        messages.success(request, "The readers have been saved. Submitted trainings keep their code.")
    return redirect(page, row.pk)


def _template(request: HttpRequest, template_id: int) -> ModelTemplate:
    return or_404(templates(request.user).filter(pk=template_id).first())


def _model(request: HttpRequest, model_id: int) -> RegisteredModel:
    return or_404(models(request.user).filter(pk=model_id).first())


def _version_of(request: HttpRequest, name: str, model: RegisteredModel) -> RegisteredModelVersion | None:
    return find_version(model, whole(request.GET.get(name, "")) or 0)
