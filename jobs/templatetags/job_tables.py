"""Tables of jobs on pages of apps that must not know about jobs."""

from __future__ import annotations

from typing import Any

from django import template

from jobs.page_queries import jobs_using

register = template.Library()


@register.inclusion_tag("jobs/_used_by.html", takes_context=True)
def used_by(context: dict[str, Any], **version: Any) -> dict[str, Any]:
    """The viewer's jobs with this dataset or model: `{% used_by dataset=dataset %}`."""
    [kind] = version
    return {"jobs": jobs_using(context["request"].user, **version), "kind": kind}
