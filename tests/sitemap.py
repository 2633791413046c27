"""Every page of the site, once: what the tests of accessibility, hostile names and pictures walk.

A page that is added gets a line here; `tests/webapp/pages/test_sitemap.py` fails until it has one.
"""

import re
from collections.abc import Callable, Iterator

from django.urls import URLPattern, URLResolver, get_resolver

from jobs.models import HostEnvironment, RequiredEnvironment
from tests.scene import Scene
from tests.stored_secrets import own_secret


def _prepared() -> int:
    return RequiredEnvironment.objects.values_list("pk", flat=True).get()


__all__ = ["NOT_PAGES", "PAGES", "STAFF_PAGES", "addresses", "api_addresses", "named_addresses", "staff_addresses"]

#: Name of an address -> the pages that it shows in the scene, for Alice.
PAGES: dict[str, Callable[[Scene], list[str]]] = {
    "overview": lambda scene: ["/"],
    "jobs:list": lambda scene: ["/jobs/", "/jobs/?search=no-such-job", "/jobs/?group=tag"],
    "insights:compare": lambda scene: [f"/jobs/compare/?jobs={scene.first.pk},{scene.second.pk}", "/jobs/compare/"],
    "insights:differences": lambda scene: [
        f"/jobs/compare/differences/?jobs={scene.first.pk},{scene.second.pk},{scene.failed.pk},{scene.done.pk}",
        "/jobs/compare/differences/",
    ],
    "checkpoints": lambda scene: ["/checkpoints/", "/checkpoints/?kept=no&metric=accuracy"],
    "studies:list": lambda scene: ["/studies/"],
    "studies:new": lambda scene: ["/studies/new/"],
    "studies:detail": lambda scene: [f"/studies/{scene.study.pk}/"],
    "reports:list": lambda scene: ["/reports/"],
    "reports:add": lambda scene: ["/reports/add/", f"/reports/add/?jobs={scene.first.pk},{scene.second.pk}"],
    "reports:detail": lambda scene: [f"/reports/{scene.report.pk}/"],
    "reports:edit": lambda scene: [f"/reports/{scene.report.pk}/edit/"],
    # The same for everybody: tests/browser/test_reports.py looks at it without a log-in.
    "shared-report": lambda scene: [],
    "cluster": lambda scene: ["/cluster/"],
    "jobs:train": lambda scene: ["/jobs/new/"],
    "jobs:detail": lambda scene: [f"/jobs/{job.pk}/" for job in (scene.first, scene.failed, scene.waiting, scene.done)],
    "jobs:file": lambda scene: [f"/jobs/{scene.done.pk}/file/?path=scores.csv"],
    "jobs:log-pattern": lambda scene: [f"/jobs/{scene.failed.pk}/log-pattern/"],
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
    "usage": lambda scene: ["/usage/?range=15m&by=job", "/usage/?from=2020-01-01&to=2020-01-02"],
    "capacity": lambda scene: ["/capacity/"],
    "hosts:list": lambda scene: ["/hosts/"],
    "resource_groups:list": lambda scene: ["/resource-groups/"],
    "resource_groups:change": lambda scene: [f"/resource-groups/{scene.first.instance_group.resource_group_id}/"],
    "secrets:list": lambda scene: ["/secrets/"],
    "secrets:new": lambda scene: ["/secrets/new/"],
    "secrets:change": lambda scene: [f"/secrets/{own_secret(scene.first.owner).pk}/"],
    "environments:list": lambda scene: ["/environments/"],
    "environments:change": lambda scene: [f"/environments/{scene.environment.pk}/"],
    "groups:list": lambda scene: ["/instance-groups/"],
    "groups:detail": lambda scene: [f"/instance-groups/{scene.first.instance_group_id}/"],
    "groups:deployment": lambda scene: [f"/instance-groups/{scene.first.instance_group_id}/deployment/"],
    "what-if": lambda scene: ["/what-if/"],
    "what-if-replay": lambda scene: [
        f"/what-if/{scene.replay.pk}/",
        f"/what-if/{scene.replay.pk}/?at={scene.replay.end.isoformat()[:19]}&play=other",
    ],
    "fair-share": lambda scene: ["/fair-share/"],
    "account": lambda scene: ["/account/"],
    "alerts": lambda scene: ["/alerts/"],
    "connect": lambda scene: ["/account/connect/"],
    "device": lambda scene: ["/device/"],
    "help:api": lambda scene: ["/help/api/"],
    "help:contents": lambda scene: ["/help/", "/help/?q=checkpoint", "/help/?q=no-such-word"],
    "help:document": lambda scene: [
        f"/help/{name}/" for name in ("charts-and-advisor", "own-loop", "runtime", "keyboard", "coming-from-wmla")
    ],
    # Only who is not logged in sees these: tests/browser/test_accessibility.py looks at them by themselves.
    "one-time-link": lambda scene: [],
    "login": lambda scene: [],
    "not found": lambda scene: ["/no-such-page/"],
}

#: The same of pages for administrators of the cluster, for Carol.
STAFF_PAGES: dict[str, Callable[[Scene], list[str]]] = {
    "groups:new": lambda scene: ["/instance-groups/new/", "/instance-groups/new/?template=elastic-fair-share"],
    "groups:change": lambda scene: [f"/instance-groups/{scene.first.instance_group_id}/change/"],
    "resource_groups:new": lambda scene: ["/resource-groups/new/"],
    "environments:new": lambda scene: ["/environments/new/"],
    "environments:prepared": lambda scene: [f"/environments/packages/{_prepared()}/"],
    "environments:prepared-log": lambda scene: [
        f"/environments/packages/{row.environment_id}/output/{row.host_id}/" for row in HostEnvironment.objects.all()
    ],
    "hosts:join": lambda scene: ["/hosts/join/"],
    "help:admin-document": lambda scene: ["/help/operator/guide/", "/help/operator/settings/"],
    "audit": lambda scene: ["/audit/", "/audit/?search=nothing-of-that-name"],
    "users": lambda scene: ["/users/", "/users/?search=nobody"],
    "user-invite": lambda scene: ["/users/invite/"],
    "user": lambda scene: [f"/users/{scene.alice.pk}/"],
}

#: Names of addresses that show no page of their own -> what they answer with.
NOT_PAGES = {
    "oidc-login": "leads to the provider",
    "oidc-callback": "leads on from the provider",
    "oidc-logout": "takes a form of the provider",
    "overview-now": "a part of the page",
    "cluster-now": "a part of the page",
    "topic-number": "JSON",
    "cluster-gpus": "JSON",
    "cluster-trace": "JSON",
    "checkpoint-keep": "takes a form",
    "studies:now": "a part of the page",
    "studies:figures": "JSON",
    "studies:change-state": "takes a form",
    "studies:add-trials": "takes a form, shows the page of the study",
    "studies:metric": "takes a form, shows the page of the study",
    "studies:seeds": "takes a form, shows the page of the study",
    "studies:enqueue": "takes a form, shows the page of the study",
    "studies:delete": "takes a form",
    "reports:text-add": "takes a form, shows the page that changes the report",
    "reports:block-text": "takes a form, shows the page that changes the report",
    "reports:block-move": "takes a form",
    "reports:block-remove": "takes a form",
    "reports:readers": "takes a form",
    "reports:share": "takes a form, shows a link once",
    "reports:link-withdraw": "takes a form",
    "reports:delete": "takes a form",
    "checkpoint-version": "takes a form",
    "datasets:live": "JSON",
    "datasets:delete": "takes a form",
    "datasets:version-delete": "takes a form",
    "datasets:check": "takes a form",
    "jobs:train-code": "JSON",
    "insights:train-preview": "JSON",
    "insights:change-preview": "JSON",
    "insights:stacks": "takes a form, shows a part of the job's page",
    "insights:record": "takes a form, shows a part of the job's page",
    "jobs:note": "takes a form, shows the job's page",
    "jobs:tags": "takes a form, shows the job's page",
    "jobs:undo": "takes a form",
    "insights:compare-curves": "JSON",
    "insights:compare-tables": "a part of the comparison",
    "jobs:columns": "takes a form, shows the list",
    "jobs:charts": "takes a choice, answers nothing",
    "jobs:counts": "a part of the list",
    "jobs:rows": "a part of the list",
    "insights:priority-question": "JSON",
    "insights:stop-question": "JSON",
    "insights:gpus": "JSON",
    "jobs:save-filter": "takes a form, shows the list",
    "jobs:forget-filter": "takes a form",
    "jobs:live": "JSON",
    "jobs:picture": "a picture",
    "jobs:curves": "JSON",
    "jobs:part": "a part of the page",
    "jobs:change": "takes a form, shows the job's page",
    "jobs:act": "takes a form",
    "jobs:again": "takes a form",
    "tracking:register": "takes a form",
    "tracking:share": "takes a form",
    "tracking:alias": "takes a form",
    "tracking:take-over": "takes a form",
    "models:delete": "takes a form",
    "models:delete-template": "takes a form",
    "models:readers": "takes a form",
    "models:template-readers": "takes a form",
    "models:take-again": "takes a form",
    "resource_groups:preview-new": "JSON",
    "resource_groups:preview": "JSON",
    "resource_groups:put-back": "takes a form",
    "resource_groups:delete": "takes a form",
    "environments:delete": "takes a form",
    "secrets:delete": "takes a form",
    "environments:prepared-hosts": "a part of the page",
    "environments:prepare": "takes a form",
    "environments:prepared-again": "takes a form",
    "environments:prepared-keep": "takes a form",
    "environments:prepared-remove": "takes a form",
    "hosts:question": "JSON",
    "hosts:act": "takes a form",
    "hosts:slot-return": "takes a form",
    "hosts:join-withdraw": "takes a form",
    "groups:parameters": "JSON",
    "groups:trace": "JSON",
    "groups:change-preview": "JSON",
    "groups:undo": "takes a form",
    "groups:act": "takes a form",
    "alerts-deliveries": "a part of the page",
    "alerts-channel-add": "takes a form, shows a secret once",
    "alerts-channel-remove": "takes a form",
    "alerts-channel-test": "takes a form",
    "alerts-rule-add": "takes a form, shows the page",
    "alerts-rule-remove": "takes a form",
    "alerts-quiet-set": "takes a form, shows the page",
    "alerts-quiet-end": "takes a form",
    "account-password": "takes a form, shows the account",
    "account-token-make": "takes a form, shows the account",
    "account-token-withdraw": "takes a form",
    "user-role": "takes a form",
    "user-reset": "takes a form, shows a link once",
    "user-activate": "takes a form, shows a link once",
    "user-deactivate": "takes a form",
    "user-withdraw": "takes a form",
    "user-token-withdraw": "takes a form",
    "usage-report": "JSON",
    "usage-price-remove": "takes a form",
    "what-if-remove": "takes a form",
    "usage-price-restore": "takes a form",
    "help:file": "a picture or another file",
    "logout": "takes a form",
    "healthz": "JSON",
    "metrics": "for Prometheus",
    "dlicmd": "a program",
    "client-wheel": "a program",
}


def addresses(scene: Scene) -> list[str]:
    return [address for pages in PAGES.values() for address in pages(scene)]


def staff_addresses(scene: Scene) -> list[str]:
    return [address for pages in STAFF_PAGES.values() for address in pages(scene)]


def api_addresses() -> list[str]:
    """An example of every address of the API: numbers are 1, names are "name", of alternatives the first."""
    return sorted({address for address in _examples(get_resolver()) if address.startswith("/api/v1/")})


def _examples(resolver: URLResolver, prefix: str = "/") -> Iterator[str]:
    for pattern in resolver.url_patterns:
        address = prefix + _example(str(pattern.pattern))
        if isinstance(pattern, URLPattern):
            yield address
        else:
            yield from _examples(pattern, address)


def _example(pattern: str) -> str:
    pattern = re.sub(
        r"\(\?P<\w+>([^)]*)\)", lambda group: "1" if r"\d" in group[1] else group[1].split("|")[0], pattern
    )
    pattern = re.sub(r"<int:\w+>", "1", pattern)
    return re.sub(r"<(str:)?\w+>", "name", pattern).removeprefix("^").removesuffix("$")


def named_addresses() -> set[str]:
    """Names of all addresses but those of the API and of WMLA, such as "jobs:list"."""
    return {name for name in _names(get_resolver()) if not name.startswith(("api:", "wmla:"))}


def _names(resolver: URLResolver, prefix: str = "") -> Iterator[str]:
    for pattern in resolver.url_patterns:
        if isinstance(pattern, URLResolver):
            yield from _names(pattern, f"{prefix}{pattern.namespace}:" if pattern.namespace else prefix)
        elif isinstance(pattern, URLPattern) and pattern.name:
            yield prefix + pattern.name
