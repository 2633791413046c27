"""Pages of the datasets."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from core.archive import ARCHIVE_SUFFIXES
from core.file_sources import given_source
from core.files_api import upload_field
from core.keyset import Order
from core.pages import carried_out, done, login_user, or_404, page_of
from core.roles import may_edit
from core.text import whole
from datasets import actions
from datasets.actions import DatasetRegistration
from datasets.forms import DatasetForm
from datasets.inspection_queue import SINGLE_SUFFIXES
from datasets.models import Dataset, DatasetVersion
from datasets.queries import datasets, datasets_live, find_version, use_count, versions

__all__ = [
    "ClassTable",
    "class_table",
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
_SHOWN_CLASSES = 40
_ROLES = {"": "All", "training": "Training", "validation": "Validation", "testing": "Testing"}
#: Kind -> icon and explanation in the chooser.
_KINDS = {
    Dataset.Kind.IMAGES: (
        "photo",
        "Images in one folder per class, CIFAR-10's python batches, or .npz files with labels. "
        "Each image is checked, and classes are counted.",
    ),
    Dataset.Kind.CSV: (
        "table",
        "Tables with one sample per row. Encoding and row lengths are checked, and columns are summarized.",
    ),
    Dataset.Kind.ANY: (
        "folder",
        "Any other data that the model's code reads. Files are only counted and measured; known formats get a preview.",
    ),
}


@require_safe
def dataset_list(request: HttpRequest) -> HttpResponse:
    page = page_of(request, datasets(), Order("name"))
    context = {
        "section": "datasets",
        "crumbs": [("Datasets", None)],
        "page": page,
        "live": datasets_live([row.pk for row in page.rows]),
    }
    return render(request, "datasets/list.html", context)


@require_safe
def datasets_live_json(request: HttpRequest) -> JsonResponse:
    """Return the states of the datasets `?id=1&id=2`, for pages that missed live events."""
    ids = [number for text in request.GET.getlist("id")[:_MAX_LIVE] if (number := whole(text)) is not None]
    return JsonResponse(datasets_live(ids))


@require_safe
def dataset_detail(request: HttpRequest, dataset_id: int) -> HttpResponse:
    live = datasets_live([dataset_id])
    dataset = or_404(datasets().filter(pk=dataset_id).first())
    version = or_404(find_version(dataset, request.GET.get("version")))
    user, all_versions = login_user(request), list(versions(dataset))
    may_change = may_edit(user, dataset)
    context = {
        "section": "datasets",
        "crumbs": [LIST_CRUMB, (dataset.name, None)],
        "dataset": dataset,
        "version": version,
        "versions": all_versions,
        "deletions": _deletions(dataset, all_versions) if may_change else [],
        "classes": class_table(version.summary),
        "may_change": may_change,
        "use_count": use_count(dataset),
        "live": live,
    }
    return render(request, "datasets/detail.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
def dataset_new(request: HttpRequest) -> HttpResponse:
    """Show the choice of the kind first, then the form."""
    kind = request.POST.get("kind") or request.GET.get("kind", "")
    if request.method != "POST" and kind not in Dataset.Kind.values:
        kinds = [(value, label, *_KINDS[Dataset.Kind(value)]) for value, label in Dataset.Kind.choices]
        crumbs = [LIST_CRUMB, ("New dataset", None)]
        return render(request, "datasets/kind.html", {"section": "datasets", "crumbs": crumbs, "kinds": kinds})
    given = {"kind": kind, "name": request.GET.get("name", "")[:255]}
    form = DatasetForm(request.POST or None, request.FILES or None, initial=given)
    if version := carried_out(request, form, lambda: actions.register(login_user(request), _registration(form))):
        return _registered(request, version)
    kind_label = dict(Dataset.Kind.choices).get(kind, kind)
    context: dict[str, Any] = {
        "section": "datasets",
        "crumbs": [LIST_CRUMB, ("New dataset", "/datasets/new/"), (kind_label, None)],
        "form": form,
        "kind_label": kind_label,
        "folder_fields": [form[name] for name in ("training", "validation", "testing")],
        "roots": settings.TIDEPOOL_DATA_ROOTS,
        "upload_field": upload_field(login_user(request), (*ARCHIVE_SUFFIXES, *SINGLE_SUFFIXES)),
    }
    return render(request, "datasets/new.html", context)


@require_POST
def dataset_delete(request: HttpRequest, dataset_id: int) -> HttpResponse:
    dataset = or_404(datasets().filter(pk=dataset_id).first())
    if not done(request, lambda: actions.delete_dataset(login_user(request), dataset)):
        return redirect("datasets:detail", dataset_id)
    messages.success(request, f"The dataset {dataset.name} has been deleted.")
    return redirect("datasets:list")


@require_POST
def version_delete(request: HttpRequest, dataset_id: int, number: int) -> HttpResponse:
    version = _version(dataset_id, number)
    if done(request, lambda: actions.delete_version(login_user(request), version)):
        messages.success(request, f"Version {number} of {version.dataset.name} has been deleted.")
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
        messages.success(request, f"{what} has been registered and checked. Trainings can use it.")
    elif version.state != DatasetVersion.State.INVALID:
        messages.success(request, f"{what} has been registered. Trainings can use it after the check.")
    return redirect("datasets:detail", version.dataset_id)


def _registration(form: DatasetForm) -> DatasetRegistration:
    values = form.cleaned_data
    common = {"name": values["name"], "kind": values["kind"], "description": values["description"]}
    if values["source"] != "upload":
        return DatasetRegistration(**common, **{role: values[role] for role in ("training", "validation", "testing")})
    if values["upload"]:
        return DatasetRegistration(**common, upload=values["upload"])
    return DatasetRegistration(**common, source=given_source("", values["file"]))


@dataclass(frozen=True)
class ClassTable:
    """Counts of each class in each part."""

    #: Names of the parts, such as "Training".
    heads: list[str]
    #: Rows of (class, [(head, count) for each of `heads`]), the largest first.
    rows: list[tuple[str, list[tuple[str, int]]]]
    #: Largest count, the full length of a bar.
    most: int
    #: Number of classes that are not among the rows.
    more: int


def class_table(summary: dict[str, Any]) -> ClassTable | None:
    """Return the table, or None if no part has classes."""
    parts = [part for part in summary.get("parts", []) if part["classes"]]
    if not parts:
        return None
    names = {name: sum(part["classes"].get(name, 0) for part in parts) for part in parts for name in part["classes"]}
    ordered = sorted(names, key=lambda name: (-names[name], _natural(name)))
    heads = [_ROLES[part["role"]] for part in parts]
    rows = [
        (name, [(head, part["classes"].get(name, 0)) for head, part in zip(heads, parts, strict=True)])
        for name in ordered[:_SHOWN_CLASSES]
    ]
    most = max(count for _, counts in rows for _, count in counts)
    return ClassTable(heads, rows, most, max(0, len(ordered) - _SHOWN_CLASSES))


def _deletions(dataset: Dataset, versions: Sequence[DatasetVersion]) -> list[dict[str, str]]:
    """Return the confirmation dialogs for deletions, with the data that is lost."""
    is_one = len(versions) == 1
    what = "The registration is" if is_one else f"All {len(versions)} versions are"
    uploads = ", together with the uploaded files" if any(version.is_uploaded for version in versions) else ""
    all_of_it = {
        "id": "delete-dataset",
        "title": f"Delete the dataset {dataset.name}?",
        "lost": f"{what} deleted{uploads}. Files in folders on the server are kept.",
        "action": reverse("datasets:delete", args=[dataset.pk]),
        "yes": "Delete dataset",
    }
    return [all_of_it, *([] if is_one else [_version_deletion(dataset, version) for version in versions])]


def _version_deletion(dataset: Dataset, version: DatasetVersion) -> dict[str, str]:
    lost = "The uploaded files are deleted" if version.is_uploaded else "The files on the server are kept"
    return {
        "id": f"delete-{version.number}",
        "title": f"Delete version {version.number} of {dataset.name}?",
        "lost": f"{lost}. Trainings use the newest remaining version.",
        "action": reverse("datasets:version-delete", args=[dataset.pk, version.number]),
        "yes": "Delete version",
    }


def _natural(name: str) -> tuple[int, str]:
    return (int(name) if name.isdecimal() and len(name) < 10 else 10**9, name)
