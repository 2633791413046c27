"""Names of all datasets as suggestions for a text field, for pages of apps that must not import datasets."""

from typing import Any

from django import template

from datasets.models import Dataset

register = template.Library()


@register.inclusion_tag("datasets/_names.html")
def dataset_names() -> dict[str, Any]:
    """Render a `<datalist id="dataset-names">`."""
    return {"names": Dataset.objects.order_by("name").values_list("name", flat=True)}
