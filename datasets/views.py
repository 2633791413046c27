"""Pages of the datasets."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from core.archive import ARCHIVE_SUFFIXES
from core.errors import UserError
from core.formfields import show_error
from core.pages import done, login_user, or_404, page_of
from core.sources import Source, Upload
from datasets import actions
from datasets.actions import DatasetRegistration
from datasets.actions.checking import SINGLE_SUFFIXES
from datasets.forms import DatasetForm
from datasets.models import Dataset, DatasetVersion
from datasets.pages import class_table, deletions, unfinished_uploads
from datasets.queries import datasets, datasets_live, find_version, use_count, versions

__all__ = [
    "dataset_check",
    "dataset_delete",
    "dataset_detail",
    "dataset_list",
    "dataset_new",
    "datasets_live_json",
    "version_delete",
]

LIST_CRUMB = ("Datasets", "/datasets/")
_MAX_LIVE = 200
#: What the chooser says about each kind.
_KINDS = {
    Dataset.Kind.IMAGES: (
        "photo",
        "Pictures in a folder for each class, CIFAR-10's python batches, or .npz files with labels. "
        "Each picture is checked, and classes are counted.",
    ),
    Dataset.Kind.CSV: (
        "table",
        "Tables with one sample per row. Encoding and the length of each row are checked, and columns are summed up.",
    ),
    Dataset.Kind.ANY: (
        "folder",
        "Anything else: the model's code reads it. Files are only counted and measured; known formats get a preview.",
    ),
}


@require_safe
def dataset_list(request: HttpRequest) -> HttpResponse:
    page = page_of(request, datasets().order_by("name"))
    context = {
        "section": "datasets",
        "crumbs": [("Datasets", None)],
        "page": page,
        "live": datasets_live([row.pk for row in page]),
    }
    return render(request, "datasets/list.html", context)


@require_safe
def datasets_live_json(request: HttpRequest) -> JsonResponse:
    """State for pages whose live chain broke: `?id=1&id=2`."""
    ids = [int(text) for text in request.GET.getlist("id")[:_MAX_LIVE] if text.isascii() and text.isdigit()]
    return JsonResponse(datasets_live([number for number in ids if number < 2**63]))


@require_safe
def dataset_detail(request: HttpRequest, dataset_id: int) -> HttpResponse:
    live = datasets_live([dataset_id])
    dataset = or_404(datasets().filter(pk=dataset_id).first())
    version = or_404(find_version(dataset, request.GET.get("version")))
    user, all_versions = login_user(request), list(versions(dataset))
    may_change = dataset.owner_id == user.pk or user.is_staff
    context = {
        "section": "datasets",
        "crumbs": [LIST_CRUMB, (dataset.name, None)],
        "dataset": dataset,
        "version": version,
        "versions": all_versions,
        "deletions": deletions(dataset, all_versions) if may_change else [],
        "classes": class_table(version.summary),
        "may_change": may_change,
        "use_count": use_count(dataset),
        "live": live,
    }
    return render(request, "datasets/detail.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
def dataset_new(request: HttpRequest) -> HttpResponse:
    """First which kind, then the form."""
    kind = request.POST.get("kind") or request.GET.get("kind", "")
    if request.method != "POST" and kind not in Dataset.Kind.values:
        kinds = [(value, label, *_KINDS[Dataset.Kind(value)]) for value, label in Dataset.Kind.choices]
        context = {"section": "datasets", "crumbs": [LIST_CRUMB, ("New dataset", None)], "kinds": kinds}
        return render(request, "datasets/kind.html", context)
    given = {"kind": kind, "name": request.GET.get("name", "")[:255]}
    form = DatasetForm(request.POST or None, request.FILES or None, initial=given)
    if request.method == "POST" and form.is_valid():
        try:
            version = actions.register(login_user(request), _registration(form))
        except UserError as error:
            show_error(form, error)
        else:
            return _registered(request, version)
    return render(request, "datasets/new.html", _form_context(request, form, kind))


@require_POST
def dataset_delete(request: HttpRequest, dataset_id: int) -> HttpResponse:
    dataset = or_404(datasets().filter(pk=dataset_id).first())
    if not done(request, lambda: actions.delete_dataset(login_user(request), dataset)):
        return redirect("datasets:detail", dataset_id)
    messages.success(request, f"The dataset {dataset.name} is deleted.")
    return redirect("datasets:list")


@require_POST
def version_delete(request: HttpRequest, dataset_id: int, number: int) -> HttpResponse:
    version = _version(dataset_id, number)
    if done(request, lambda: actions.delete_version(login_user(request), version)):
        messages.success(request, f"Version {number} of {version.dataset.name} is deleted.")
    return redirect("datasets:detail", dataset_id)


@require_POST
def dataset_check(request: HttpRequest, dataset_id: int, number: int) -> HttpResponse:
    version = _version(dataset_id, number)
    done(request, lambda: actions.check_again(login_user(request), version))
    return redirect("datasets:detail", dataset_id)


def _version(dataset_id: int, number: int) -> DatasetVersion:
    return or_404(find_version(or_404(datasets().filter(pk=dataset_id).first()), number))


def _registered(request: HttpRequest, version: DatasetVersion) -> HttpResponse:
    what = f"Version {version.number} of {version.dataset.name}" if version.number > 1 else version.dataset.name
    if version.state == DatasetVersion.State.READY:
        messages.success(request, f"{what} is registered and checked: trainings may use it.")
    elif version.state != DatasetVersion.State.INVALID:
        messages.success(request, f"{what} is registered. Trainings may use it once it is checked.")
    return redirect("datasets:detail", version.dataset_id)


def _form_context(request: HttpRequest, form: DatasetForm, kind: str) -> dict[str, Any]:
    return {
        "section": "datasets",
        "crumbs": [LIST_CRUMB, ("New dataset", "/datasets/new/"), (dict(Dataset.Kind.choices).get(kind, kind), None)],
        "form": form,
        "kind_label": dict(Dataset.Kind.choices).get(kind, kind),
        "folder_fields": [form[name] for name in ("training", "validation", "testing")],
        "roots": settings.TIDEPOOL_DATA_ROOTS,
        "uploads": unfinished_uploads(login_user(request)),
        "max_bytes": settings.TIDEPOOL_UPLOAD_MAX_BYTES,
        "suffixes": ",".join((*ARCHIVE_SUFFIXES, *SINGLE_SUFFIXES)),
        "max_files": settings.TIDEPOOL_UPLOAD_MAX_FILES,
    }


def _registration(form: DatasetForm) -> DatasetRegistration:
    values = form.cleaned_data
    common = {"name": values["name"], "kind": values["kind"], "description": values["description"]}
    if values["source"] != "upload":
        return DatasetRegistration(**common, **{role: values[role] for role in ("training", "validation", "testing")})
    if values["upload"]:
        return DatasetRegistration(**common, upload=values["upload"])
    return DatasetRegistration(**common, source=Source(upload=Upload(values["file"].name, values["file"].file)))
