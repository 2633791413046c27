"""Every page of the site, once: what the tests of accessibility, hostile names and pictures walk.

A page that is added gets a line here; `tests/pages/test_sitemap.py` fails until it has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from django.urls import URLPattern, URLResolver, get_resolver

from tests.scene import Scene

__all__ = ["NOT_PAGES", "PAGES", "addresses", "named_addresses"]

#: Name of an address -> the pages that it shows in the scene, for Alice.
PAGES: dict[str, Callable[[Scene], list[str]]] = {
    "overview": lambda scene: ["/"],
    "jobs:list": lambda scene: ["/jobs/", "/jobs/?search=no-such-job"],
    "jobs:compare": lambda scene: [f"/jobs/compare/?jobs={scene.first.pk},{scene.second.pk}", "/jobs/compare/"],
    "cluster": lambda scene: ["/cluster/"],
    "jobs:train": lambda scene: ["/jobs/new/"],
    "jobs:detail": lambda scene: [f"/jobs/{job.pk}/" for job in (scene.first, scene.failed, scene.waiting, scene.done)],
    "jobs:validate": lambda scene: [f"/jobs/{scene.done.pk}/validate/"],
    "datasets:list": lambda scene: ["/datasets/"],
    "datasets:new": lambda scene: ["/datasets/new/", "/datasets/new/?kind=images"],
    "datasets:detail": lambda scene: [f"/datasets/{row.dataset_id}/" for row in (scene.dataset, scene.refused)],
    "models:list": lambda scene: ["/models/"],
    "models:new": lambda scene: ["/models/new/"],
    "models:add": lambda scene: [f"/models/new/{scene.model.template_id}/"],
    "models:detail": lambda scene: [f"/models/{scene.model.model_id}/"],
    "models:change": lambda scene: [f"/models/{scene.model.model_id}/change/"],
    "models:clone": lambda scene: [f"/models/{scene.model.model_id}/clone/"],
    "models:compare": lambda scene: [f"/models/{scene.model.model_id}/compare/"],
    "models:templates": lambda scene: ["/models/templates/"],
    "models:add-location": lambda scene: ["/models/templates/new/"],
    "models:template": lambda scene: [f"/models/templates/{scene.model.template_id}/"],
    "workers:hosts": lambda scene: ["/hosts/"],
    # Only who is not logged in sees it: tests/browser/test_accessibility.py looks at it by itself.
    "login": lambda scene: [],
    "not found": lambda scene: ["/no-such-page/"],
}

#: Names of addresses that show no page of their own -> what they answer with.
NOT_PAGES = {
    "overview-live": "JSON",
    "cluster-live": "JSON",
    "cluster-trace": "JSON",
    "datasets:live": "JSON",
    "datasets:delete": "takes a form",
    "datasets:version-delete": "takes a form",
    "datasets:check": "takes a form",
    "jobs:train-preview": "JSON",
    "jobs:change-preview": "JSON",
    "jobs:undo": "takes a form",
    "jobs:compare-curves": "JSON",
    "jobs:compare-tables": "a part of the comparison",
    "jobs:rows": "a part of the list",
    "jobs:stop-question": "JSON",
    "jobs:save-filter": "takes a form, shows the list",
    "jobs:forget-filter": "takes a form",
    "jobs:list-live": "JSON",
    "jobs:live": "JSON",
    "jobs:curves": "JSON",
    "jobs:change": "takes a form, shows the job's page",
    "jobs:clone": "takes a form",
    "jobs:act": "takes a form",
    "models:delete": "takes a form",
    "models:delete-template": "takes a form",
    "models:take-again": "takes a form",
    "workers:hosts-live": "JSON",
    "workers:hosts-panels": "a part of the page",
    "logout": "takes a form",
    "healthz": "JSON",
}


def addresses(scene: Scene) -> list[str]:
    return [address for pages in PAGES.values() for address in pages(scene)]


def named_addresses() -> set[str]:
    """Names of all addresses but the API's, such as "jobs:list"."""
    return {name for name in _names(get_resolver()) if not name.startswith("api:")}


def _names(resolver: URLResolver, prefix: str = "") -> Iterator[str]:
    for pattern in resolver.url_patterns:
        if isinstance(pattern, URLResolver):
            yield from _names(pattern, f"{prefix}{pattern.namespace}:" if pattern.namespace else prefix)
        elif isinstance(pattern, URLPattern) and pattern.name:
            yield prefix + pattern.name
