"""Results of a model's versions, for pages of apps that must not import `jobs`."""

from typing import Any

from django import template

from core.roles import is_cluster_admin
from insights.version_results import results_by_version
from models_registry.models import RegisteredModel

register = template.Library()


@register.inclusion_tag("insights/_version_results.html", takes_context=True)
def results_of_versions(context: dict[str, Any], model: RegisteredModel) -> dict[str, Any]:
    """Show the best result of each version among the trainings that the viewer may see."""
    user = context["request"].user
    return {"results": results_by_version(user, model), "everybodys": is_cluster_admin(user)}
