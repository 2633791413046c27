"""The form that starts a validation of a trained model."""

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from core.errors import UserError
from core.pages import login_user, show_error
from datasets.models import Dataset
from jobs import actions
from jobs.files.validation_runs import why_not_validated
from jobs.models import InstanceGroup, Validation
from jobs.pages.crumbs import LIST_CRUMB
from jobs.pages.queries import job_or_404
from jobs.queries.groups import usable_groups

__all__ = ["ValidateForm", "job_validate"]

_SPLITS = [
    (Validation.Split.VALIDATION, "Validation"),
    (Validation.Split.TESTING, "Testing"),
]


class ValidateForm(forms.Form):
    split = forms.ChoiceField(
        choices=_SPLITS,
        help_text="A script with a single held-out set, such as a FabricModel, is always evaluated on that set.",
    )
    dataset = forms.ModelChoiceField(
        Dataset.objects.order_by("name"), required=False, empty_label="Dataset version of the training",
        help_text="Another dataset must have the format that the script reads.",
    )  # fmt: skip
    instance_group = forms.ModelChoiceField(
        InstanceGroup.objects.none(), empty_label=None, help_text="The run uses one GPU of this group until it ends."
    )
    priority = forms.IntegerField(help_text="1 to 10,000. The run waits for its GPU like any training.")

    def __init__(self, *args: Any, groups: list[InstanceGroup], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["instance_group"]
        assert isinstance(field, forms.ModelChoiceField)
        field.queryset = InstanceGroup.objects.filter(pk__in=[group.pk for group in groups])


@require_http_methods(["GET", "HEAD", "POST"])
def job_validate(request: HttpRequest, job_id: int) -> HttpResponse:
    job = job_or_404(request.user, job_id)
    initial = {"instance_group": job.instance_group_id, "priority": job.priority}
    form = ValidateForm(request.POST or None, groups=usable_groups(request.user), initial=initial)
    if request.method == "POST" and form.is_valid():
        values = form.cleaned_data
        wanted = actions.ValidationRequest(
            dataset=values["dataset"].name if values["dataset"] else None,
            split=values["split"],
            instance_group=values["instance_group"].name,
            priority=values["priority"],
        )
        try:
            validation = actions.validate(job, wanted, login_user(request))
        except UserError as error:
            show_error(form, error)
        else:
            messages.success(
                request, "The validation has been queued. The result appears here and on the model's page."
            )
            return redirect("jobs:detail", validation.job_id)
    context = {
        "section": "jobs",
        "crumbs": [LIST_CRUMB, (job.name, f"/jobs/{job.pk}/"), ("Validate", None)],
        "job": job,
        "form": form,
        "why_not": why_not_validated(job),
    }
    return render(request, "jobs/validation/page.html", context)
