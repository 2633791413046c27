"""Which section explains which page: the Help link of each page's frame."""

from typing import Any

from django.http import HttpRequest
from django.urls import reverse

from core.help_links import help_address

__all__ = ["PAGE_HELP", "in_templates"]

#: Name of a page's address -> document and anchor; "": the contents, as for addresses that are not here.
PAGE_HELP = {
    "overview": "charts-and-advisor#the-cluster",
    "cluster": "charts-and-advisor#the-cluster",
    "jobs:list": "jobs",
    "jobs:train": "train",
    "jobs:detail": "job-page",
    "jobs:file": "job-page",
    "jobs:log-pattern": "scripts#change-the-log-pattern",
    "jobs:validate": "models#validate-a-trained-model",
    "insights:compare": "charts-and-advisor#compare",
    "insights:differences": "charts-and-advisor#compare",
    "checkpoints": "checkpoints",
    "studies:list": "studies",
    "studies:new": "studies#create-a-study",
    "studies:detail": "studies#follow-a-study",
    "reports:list": "reports",
    "reports:add": "reports#create-a-report",
    "reports:detail": "reports#who-can-read-a-report",
    "reports:edit": "reports#create-a-report",
    "datasets:list": "datasets",
    "datasets:new": "datasets#create-a-dataset",
    "datasets:detail": "datasets#versions",
    "models:list": "models",
    "models:new": "models#add-a-model",
    "models:add": "models#how-settings-reach-the-script",
    "models:detail": "models#versions",
    "models:change": "models#how-settings-reach-the-script",
    "models:clone": "models#add-a-model",
    "models:compare": "models#versions",
    "models:templates": "models#add-a-model",
    "models:add-location": "models#add-a-model",
    "models:template": "models#add-a-model",
    "usage": "usage",
    "hosts:list": "hosts-and-resource-groups#hosts",
    "hosts:join": "operator/join-a-host",
    "capacity": "autoscaling",
    "resource_groups:list": "hosts-and-resource-groups#resource-groups",
    "resource_groups:new": "hosts-and-resource-groups#resource-groups",
    "resource_groups:change": "hosts-and-resource-groups#resource-groups",
    "groups:list": "instance-groups",
    "groups:new": "instance-groups#create-an-instance-group",
    "groups:detail": "instance-groups#terms",
    "groups:change": "instance-groups#change-one",
    "groups:deployment": "instance-groups#parameters-of-wmla",
    "secrets:list": "train#secrets",
    "secrets:new": "train#secrets",
    "secrets:change": "train#secrets",
    "environments:list": "scripts#named-environments",
    "environments:new": "scripts#named-environments",
    "environments:change": "scripts#named-environments",
    "environments:prepared": "instance-groups#environments-on-hosts",
    "environments:prepared-log": "instance-groups#environments-on-hosts",
    "fair-share": "instance-groups#fair-share",
    "what-if": "what-if",
    "what-if-replay": "what-if",
    "account": "users#your-own-account",
    "alerts": "alerts",
    "connect": "cli#install-and-log-in",
    "device": "cli#install-and-log-in",
    "users": "users#roles",
    "user": "users#ending-things",
    "user-invite": "users#inviting",
    "audit": "users#audit",
    "help:api": "sdk",
    "help:contents": "",
    "help:document": "",
    "help:admin-document": "",
}


def in_templates(request: HttpRequest) -> dict[str, Any]:
    """Context processor: gives templates `help_address`, the address that explains the page."""
    return {"help_address": _help_address(request)}


def _help_address(request: HttpRequest) -> str:
    page = request.resolver_match.view_name if request.resolver_match else ""
    target = PAGE_HELP.get(page, "")
    return help_address(*target.split("#")) if target else reverse("help:contents")
