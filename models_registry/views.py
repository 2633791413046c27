"""Pages of the models."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from core.errors import UserError
from core.formfields import show_error
from core.pages import done, login_user, or_404, page_of
from models_registry.actions import ModelRegistration, delete_model, register
from models_registry.code import CodeFacts, inspect_code
from models_registry.compare import changed_files, changed_values
from models_registry.forms import ModelForm, initial_of
from models_registry.models import ModelTemplate, RegisteredModel, RegisteredModelVersion
from models_registry.queries import (
    code_files,
    find_version,
    models,
    shown_file,
    templates,
    versions,
)
from models_registry.settings import told

__all__ = ["model_add", "model_change", "model_clone", "model_compare", "model_delete", "model_detail", "model_list"]

LIST_CRUMB = ("Models", "/models/")
_KEEP = "keep"


@require_safe
def model_list(request: HttpRequest) -> HttpResponse:
    page = page_of(request, models().order_by("name"))
    context = {"section": "models", "crumbs": [("Models", None)], "page": page}
    return render(request, "models_registry/list.html", context)


@require_safe
def model_detail(request: HttpRequest, model_id: int) -> HttpResponse:
    """`?version=` shows an older one, `?file=` another file than the entry point."""
    model = _model(model_id)
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
        "settings": told(shown.settings, facts.arguments),
        "files": code_files(shown.folder),
        "shown": shown_file(shown.folder, request.GET.get("file", shown.entry_point)),
        "may_change": _may_change(request, model),
    }
    return render(request, "models_registry/detail.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
def model_add(request: HttpRequest, template_id: int) -> HttpResponse:
    """Add model: of a template's code."""
    template = or_404(_template(template_id))
    facts = inspect_code(template.folder, template.entry_point)
    form = ModelForm(
        request.POST or None,
        arguments=facts.arguments,
        asks_manager=facts.asks_manager,
        initial=_usual(template, facts),
    )
    version = _registered(request, form, template, template.framework)
    if version is not None:
        messages.success(request, _added(version))
        return redirect("models:detail", version.model_id)
    crumbs = [LIST_CRUMB, ("New model", "/models/new/"), (template.name, None)]
    return _form_page(request, form, facts, crumbs, title="Add model", button="Add", code=template)


@require_http_methods(["GET", "HEAD", "POST"])
def model_clone(request: HttpRequest, model_id: int) -> HttpResponse:
    """A model of one's own with the newest version's code and settings."""
    model = _model(model_id)
    [newest] = model.latest  # type: ignore[attr-defined]  # see queries.models
    facts = inspect_code(newest.folder, newest.entry_point)
    initial = {**initial_of(newest, facts.arguments), "name": f"{model.name}-copy"}
    form = ModelForm(request.POST or None, arguments=facts.arguments, asks_manager=facts.asks_manager, initial=initial)
    version = _registered(request, form, newest, newest.framework)
    if version is not None:
        messages.success(request, _added(version))
        return redirect("models:detail", version.model_id)
    crumbs = [LIST_CRUMB, (model.name, f"/models/{model.pk}/"), ("Clone", None)]
    return _form_page(request, form, facts, crumbs, title=f"Clone {model.name}", button="Add", code=newest)


@require_http_methods(["GET", "HEAD", "POST"])
def model_change(request: HttpRequest, model_id: int) -> HttpResponse:
    """The next version: other settings, or the code of a template as it is now."""
    model = _model(model_id)
    if not _may_change(request, model):
        messages.error(request, f"{model.name} belongs to {model.owner.get_username()}: clone it to change it.")
        return redirect("models:detail", model.pk)
    [newest] = model.latest  # type: ignore[attr-defined]  # see queries.models
    source = _chosen_code(request.POST.get("code", _KEEP), newest)
    facts = inspect_code(source.folder, source.entry_point)
    initial = {**initial_of(newest, facts.arguments), "name": model.name, "code": _KEEP}
    data = {**request.POST.dict(), "name": model.name} if request.method == "POST" else None
    form = ModelForm(
        data, arguments=facts.arguments, asks_manager=facts.asks_manager, codes=_codes(newest), initial=initial
    )
    form.fields["name"].disabled = True
    version = _registered(request, form, source, newest.framework)
    if version is not None:
        messages.success(request, f"Version {version.number} has been added. Trainings use it from now on.")
        return redirect("models:detail", model.pk)
    crumbs = [LIST_CRUMB, (model.name, f"/models/{model.pk}/"), ("New version", None)]
    return _form_page(
        request, form, facts, crumbs, title=f"New version of {model.name}", button="Add version", code=source
    )


@require_safe
def model_compare(request: HttpRequest, model_id: int) -> HttpResponse:
    """Differences from version `old` to version `new`; without them, those of the newest one."""
    model = _model(model_id)
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
def model_delete(request: HttpRequest, model_id: int) -> HttpResponse:
    model = _model(model_id)
    if not done(request, lambda: delete_model(model, login_user(request))):
        return redirect("models:detail", model_id)
    messages.success(request, f"The model {model.name} is deleted.")
    return redirect("models:list")


def _template(template_id: int) -> ModelTemplate | None:
    return templates().filter(pk=template_id).first()


def _model(model_id: int) -> RegisteredModel:
    return or_404(models().filter(pk=model_id).first())


def _may_change(request: HttpRequest, model: RegisteredModel) -> bool:
    user = login_user(request)
    return user.is_staff or model.owner_id == user.pk


def _version_of(request: HttpRequest, name: str, model: RegisteredModel) -> RegisteredModelVersion | None:
    text = request.GET.get(name, "")
    return find_version(model, int(text)) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def _usual(template: ModelTemplate, facts: CodeFacts) -> dict[str, Any]:
    engine = RegisteredModelVersion.Engine.ELASTIC if facts.elastic else RegisteredModelVersion.Engine.SINGLE
    return {"description": template.description, "engine": engine}


def _codes(newest: RegisteredModelVersion) -> list[tuple[str, str]]:
    known = ((str(each.pk), f"Template {each.name}") for each in templates().order_by("name"))
    return [(_KEEP, f"As in version {newest.number}"), *known]


def _chosen_code(chosen: str, newest: RegisteredModelVersion) -> RegisteredModelVersion | ModelTemplate:
    if not (chosen.isascii() and chosen.isdecimal() and len(chosen) < 19):
        return newest
    return _template(int(chosen)) or newest


def _registered(
    request: HttpRequest, form: ModelForm, source: ModelTemplate | RegisteredModelVersion, framework: str
) -> RegisteredModelVersion | None:
    """The version that a good form makes; else its errors are in the form."""
    if request.method != "POST" or not form.is_valid():
        return None
    values = form.cleaned_data
    registration = ModelRegistration(
        name=values["name"],
        source=source,
        framework=framework,
        engine=values["engine"],
        default_dataset=values["dataset"],
        settings=form.chosen_settings(),
        parameters=values["parameters"],
        description=values["description"],
    )
    try:
        return register(login_user(request), registration)
    except UserError as error:
        show_error(form, error)
        return None


def _added(version: RegisteredModelVersion) -> str:
    if version.number > 1:
        return f"You have a model {version.model.name} already: this is its version {version.number}."
    return f"The model {version.model.name} has been added: it can be trained now."


def _form_page(
    request: HttpRequest,
    form: ModelForm,
    facts: CodeFacts,
    crumbs: list[tuple[str, str | None]],
    **words: Any,
) -> HttpResponse:
    context = {"section": "models", "crumbs": crumbs, "form": form, "facts": facts, **words}
    return render(request, "models_registry/add.html", context)
