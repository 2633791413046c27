"""The names of all datasets as proposals for a text field, on pages of apps that must not know about datasets."""

from typing import Any

from django import template

from datasets.models import Dataset

register = template.Library()


@register.inclusion_tag("datasets/_names.html")
def dataset_names() -> dict[str, Any]:
    """A `<datalist id="dataset-names">`."""
    return {"names": Dataset.objects.order_by("name").values_list("name", flat=True)}
