"""Pages of the datasets."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from datasets.actions import DatasetRegistration, register
from datasets.forms import DatasetForm
from datasets.queries import datasets, versions
from webapp.lib.errors import UserError
from webapp.lib.formfields import show_error
from webapp.lib.pages import login_user, or_404, page_of
from webapp.lib.sources import Source, Upload

__all__ = ["dataset_detail", "dataset_list", "dataset_new"]

LIST_CRUMB = ("Datasets", "/datasets/")


@require_safe
def dataset_list(request: HttpRequest) -> HttpResponse:
    page = page_of(request, datasets().order_by("name"))
    return render(request, "datasets/list.html", {"section": "datasets", "crumbs": [("Datasets", None)], "page": page})


@require_safe
def dataset_detail(request: HttpRequest, dataset_id: int) -> HttpResponse:
    dataset = or_404(datasets().filter(pk=dataset_id).first())
    context = {
        "section": "datasets",
        "crumbs": [LIST_CRUMB, (dataset.name, None)],
        "dataset": dataset,
        "versions": versions(dataset),
    }
    return render(request, "datasets/detail.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
def dataset_new(request: HttpRequest) -> HttpResponse:
    form = DatasetForm(request.POST or None, request.FILES or None)
    if request.method == "POST" and form.is_valid():
        try:
            version = register(login_user(request), _registration(form))
        except UserError as error:
            show_error(form, error)
        else:
            messages.success(request, f"The dataset {version.dataset.name} is registered: trainings may use it.")
            return redirect("datasets:detail", version.dataset_id)
    context = {
        "section": "datasets",
        "crumbs": [LIST_CRUMB, ("New dataset", None)],
        "form": form,
        "roots": settings.TIDEPOOL_DATA_ROOTS,
    }
    return render(request, "datasets/new.html", context)


def _registration(form: DatasetForm) -> DatasetRegistration:
    values = form.cleaned_data
    upload = Upload(values["file"].name, values["file"].file) if values["file"] else None
    return DatasetRegistration(
        name=values["name"],
        source=Source(path=values["path"], upload=upload),
        kind=values["kind"],
        description=values["description"],
    )
