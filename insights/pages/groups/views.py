"""Pages of the instance groups: the list, the page of a group, and fair share."""

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from core.errors import NotFound
from core.keyset import Order
from core.live import current_seqs
from core.pages import done, login_user, page_of
from core.roles import may_change
from insights.cluster_trace import WINDOWS, cluster_trace
from insights.fair_share import fair_share_page
from insights.pages.cluster.views import COLUMNS, FIRST_WINDOW, group_figure, minutes_of
from jobs.actions.groups import delete_instance_group, find_preset, start_instance_group, stop_instance_group
from jobs.gpu_weights import no_such_gpus, weights_of
from jobs.models import InstanceGroup
from jobs.queries.group_parameters import of_field
from jobs.queries.group_terms import TERMS, in_words, terms_of
from jobs.queries.groups import (
    changeable_terms,
    deployment,
    get_visible_group,
    groups_now,
    newest_jobs,
    usable_groups,
    visible_groups,
)
from jobs.topics import GROUPS
from workers.queries import gpu_models
from workers.topics import CLUSTER

__all__ = [
    "LIST_CRUMB",
    "fair_share",
    "group_act",
    "group_deployment",
    "group_detail",
    "group_list",
    "group_of",
    "group_trace",
]

LIST_CRUMB = ("Instance groups", "/instance-groups/")
#: Topics that lists and pages of groups subscribe to.
_TOPICS = (CLUSTER, GROUPS)
_TABS = (
    ("overview", "Overview"),
    ("trainings", "Trainings"),
    ("hosts", "Hosts"),
    ("configuration", "Configuration"),
    ("members", "Members"),
)
#: Ids of the parts that follow the group, beside the key figures: all but the chart and what never changes.
_FOLLOWED = (
    *("group-head", "sharing", "trainings-now", "hosts-now", "configuration-now", "members-now"),
    "group-dialogs",
)
#: Action -> (function, message after success) of the buttons on a group's page.
_ACTIONS: dict[str, tuple[Callable[[int, User], InstanceGroup], str]] = {
    "start": (start_instance_group, "{} was started: trainings can be submitted to it."),
    "stop": (stop_instance_group, "{} was stopped: it accepts no new trainings. Running trainings continue."),
    "delete": (delete_instance_group, "The instance group {} was deleted."),
}


@require_safe
def group_list(request: HttpRequest) -> HttpResponse:
    context = {"section": "groups", "crumbs": [("Instance groups", None)], "seqs": current_seqs(_TOPICS)}
    groups = visible_groups(request.user).prefetch_related("resource_group__hosts")
    page = page_of(request, groups, Order("name"))
    return render(request, "insights/groups/list.html", {**context, "page": page, "rows": groups_now(page.rows)})


@require_safe
def group_detail(request: HttpRequest, group_id: int) -> HttpResponse:
    seqs = current_seqs(_TOPICS)
    group = group_of(request, group_id)
    [now] = groups_now([group])
    context: dict[str, Any] = {
        "section": "groups",
        "crumbs": [LIST_CRUMB, (group.name, None)],
        "tabs": _TABS,
        "followed": ",".join(f"#{part}:morph" for part in _FOLLOWED),
        "seqs": seqs,
        "preset": find_preset(group.template),
        "configuration": _configuration(group),
        "members": group.members.order_by("username"),
        "admins": group.admins.order_by("username"),
        "may_change": bool(changeable_terms(request.user, group)),
        "may_submit": may_change(request.user) and group in usable_groups(request.user),
        "has_jobs": group.jobs.exists(),
        "group": group,
        "now": now,
        "jobs": newest_jobs(request.user, group),
        "sharing": _sharing(group),
    }
    if "HX-Request" not in request.headers:  # parts that htmx requests again have no chart
        figure = group_figure(cluster_trace(request.user, timezone.now(), FIRST_WINDOW, group))
        context |= {"figure": figure, "windows": WINDOWS, "minutes": FIRST_WINDOW, "columns": COLUMNS}
    return render(request, "insights/groups/detail.html", context)


@require_safe
def group_trace(request: HttpRequest, group_id: int) -> JsonResponse:
    """Return the figure of the window `?minutes=`."""
    group = group_of(request, group_id)
    return JsonResponse(group_figure(cluster_trace(request.user, timezone.now(), minutes_of(request), group)))


@require_safe
def group_deployment(request: HttpRequest, group_id: int) -> HttpResponse:
    """Show the result of deploying the group."""
    group = group_of(request, group_id)
    context = {
        "section": "groups",
        "crumbs": [LIST_CRUMB, (group.name, f"/instance-groups/{group.pk}/"), ("Deployment", None)],
        "group": group,
        "deployment": deployment(group.resource_group),
    }
    return render(request, "insights/groups/deployment.html", context)


@require_POST
def group_act(request: HttpRequest, group_id: str, action: str) -> HttpResponse:
    group = group_of(request, int(group_id))
    act, sentence = _ACTIONS[action]
    if done(request, lambda: act(group.pk, login_user(request))):
        messages.success(request, sentence.format(group.name))
        if action == "delete":
            return redirect("groups:list")
    return redirect("groups:detail", group.pk)


def group_of(request: HttpRequest, group_id: int) -> InstanceGroup:
    try:
        return get_visible_group(request.user, group_id)
    except NotFound:
        raise Http404 from None


_GOODPUT = {
    InstanceGroup.Aim.SOON: "GPUs go to the trainings that use them best; trainings with little work left weigh more.",
    InstanceGroup.Aim.EVEN: "GPUs go to the trainings that use them best, so that all gain equal speed-ups.",
    InstanceGroup.Aim.USED: "GPUs go to the trainings that use them best; users with little usage weigh more.",
}


def _sharing(group: InstanceGroup) -> list[str]:
    """Return sentences about the division of the group's GPUs."""
    policy = {
        InstanceGroup.Policy.FAIRSHARE: "Its trainings share GPUs in proportion to their priorities.",
        InstanceGroup.Policy.PRIORITY: "Trainings with a higher priority get GPUs first.",
        InstanceGroup.Policy.FIFO: "Trainings that were submitted earlier get GPUs first.",
        InstanceGroup.Policy.GOODPUT: (
            f"{_GOODPUT[InstanceGroup.Aim(group.aim)]} No training gets more GPUs than speed it up."
        ),
    }[InstanceGroup.Policy(group.policy)]
    preemption = "Running trainings can lose GPUs" if group.takes_gpus else "Running trainings keep their GPUs"
    grace = f"; a stopped training has {group.reclaim_grace_seconds} s to end" if group.takes_gpus else ""
    own = "The group owns no GPUs" if group.quota is None else f"The group owns {in_words('quota', group.quota)}"
    weight = f"it gets a share of the GPUs beyond all quotas by its weight, {group.weight}"
    borrows = weight if group.weight and group.borrows else "it does not use more than that"
    lends = "" if group.quota is None else f" It {'lends' if group.lends else 'does not lend'} its free GPUs."
    weights = [_weights(group)] if group.policy == InstanceGroup.Policy.FAIRSHARE and group.gpu_weights else []
    return [policy, *weights, f"{preemption}{grace}.", f"{own}; {borrows}.{lends}"]


def _weights(group: InstanceGroup) -> str:
    """Return a sentence about the weights of GPU models, and the models that no host of its resource group has."""
    weights = weights_of(group.gpu_weights)
    absent = sorted(weights.keys() - gpu_models(group.resource_group))
    named = ", ".join(f"{model} {weight:g}" for model, weight in weights.items())
    missing = f" {no_such_gpus(absent, group.resource_group.name)}" if absent else ""
    return f"Each training uses GPUs of one model, and a GPU counts by its model: {named}; others 1.{missing}"


def _configuration(group: InstanceGroup) -> list[tuple[str, str, str]]:
    """Return (label, value in words, parameter of WMLA as NAME=value) of each term."""
    terms = terms_of(group)
    rows = []
    for term in TERMS:
        parameter, value = of_field(term.column), terms[term.column]
        written = str(value).lower() if isinstance(value, bool) else value
        rows.append((term.label, in_words(term.column, value), f"{parameter.name}={written}" if parameter else ""))
    return rows


@require_safe
def fair_share(request: HttpRequest) -> HttpResponse:
    """Show entitlements, holdings, and which training waits for which."""
    context = {"section": "fair-share", "crumbs": [("Fair share", None)], "seqs": current_seqs(_TOPICS)}
    return render(request, "insights/groups/fair_share.html", {**context, "page": fair_share_page(request.user)})
