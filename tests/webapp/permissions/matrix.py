"""The addresses of the site, one cluster with somebody in each role, and what a request is answered with."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

from django.contrib.auth.models import User
from django.contrib.messages import ERROR, get_messages
from django.db import transaction
from django.http import HttpResponse
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, reverse
from django.utils import timezone

from accounts import actions
from accounts.tokens import digest_of, make_token
from alerts.actions import add_channel, add_rule
from core.models import Upload
from core.roles import Role, viewers
from core.visibility import Readers
from jobs.actions.job_commands import JobChange, change_job
from jobs.files.job_folder import CHECKPOINT_FILES, job_folder
from jobs.models import Checkpoint, InstanceGroup, Job, RequiredEnvironment, SavedFilter, Validation
from reports.models import ShareLink
from tests.environments import prepared_environment
from tests.example_study import finished_study
from tests.factories import (
    DatasetVersionFactory,
    HostFactory,
    JobFactory,
    ModelTemplateFactory,
    RegisteredModelFactory,
    RegisteredModelVersionFactory,
    ResourceGroupFactory,
    UserFactory,
)
from tests.permissions import IN, LOGIN, MISSING, REFUSED, RULES, Rule, rule_of
from tests.scene import Scene, build_scene
from tests.stored_secrets import own_secret
from tracking.models import ModelVersion
from usage.models import GpuPrice
from wmla.base_view import csrf_token_of
from wmla.identifiers import identities, submitted
from workers.models import Host, JoinToken, Slot

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
NO_SUCH_METHOD = "no such method"
#: Number that stands for a text in an address, until the text replaces it.
_MARK = 7_770_000_000
#: Public for the middleware; their views ask for a token of their own.
ASK_THEMSELVES = {"metrics"}


@dataclass(frozen=True)
class Route:
    name: str
    #: Pattern in Django's form, such as `jobs/<int:job_id>/`.
    pattern: str
    parameters: tuple[str, ...]
    methods: frozenset[str]

    @property
    def is_api(self) -> bool:
        return self.name.startswith(("api:", "wmla:"))


def _routes(resolver: URLResolver, prefix: str = "", namespace: str = "") -> Iterator[Route]:
    for each in resolver.url_patterns:
        pattern = prefix + str(each.pattern)
        if isinstance(each, URLResolver):
            inner = f"{namespace}{each.namespace}:" if each.namespace else namespace
            yield from _routes(each, pattern, inner)
        elif each.name:
            parameters = re.findall(r"<(?:\w+:)?(\w+)>", pattern)
            yield Route(namespace + each.name, pattern, tuple(parameters), frozenset(_methods(each)))


def _methods(pattern: URLPattern) -> set[str]:
    """Return a view's methods: those of a class, or the list in Django's `require_http_methods`."""
    view: Any = pattern.callback
    if cls := getattr(view, "cls", None) or getattr(view, "view_class", None):
        return {
            method for method in METHODS if method.lower() in cls.http_method_names and hasattr(cls, method.lower())
        }
    while view is not None:
        for cell in getattr(view, "__closure__", None) or ():
            if isinstance(cell.cell_contents, list):
                return set(cell.cell_contents) & set(METHODS)
        view = getattr(view, "__wrapped__", None)
    return set(METHODS)


def _room(route: Route) -> str:
    """Return the first words of the address, such as `jobs` or `api/v1/hosts`."""
    words = [word for word in route.pattern.removeprefix("^").split("/") if word and "<" not in word]
    return "/".join(words[: 3 if route.is_api else 1]) or "overview"


ROUTES = {route.name: route for route in _routes(get_resolver())}
#: First words of addresses -> names of the routes below them, which the tests that ask of all take together.
ROOMS = {
    room: [name for name in sorted(ROUTES) if _room(ROUTES[name]) == room]
    for room in sorted(map(_room, ROUTES.values()))
}
LINES = sorted(f"{method} {route.name}" for route in ROUTES.values() for method in route.methods)


def is_public(route: Route) -> bool:
    lines = [f"{method} {route.name}" for method in route.methods]
    return all(line in RULES and rule_of(line).audience[0] == IN for line in lines)


@dataclass(frozen=True)
class World:
    scene: Scene
    users: dict[str, User | None]
    #: Session keys by role.
    sessions: dict[str, str]
    #: Values of the parameters of addresses: by the parameter's name, by that name after the address's first word, or
    #: by the name that a rule gives.
    values: dict[str, Any]

    def named(self, value: Any) -> Any:
        return self.values.get(value, value) if isinstance(value, str) else value


def build_world(home: Path) -> World:
    scene = build_scene()
    users: dict[str, User | None] = {
        "nobody": None,
        "viewer": UserFactory(username="victor"),
        "stranger": UserFactory(username="dave"),
        "owner": scene.alice,
        "group admin": UserFactory(username="gail"),
        "cluster admin": UserFactory(username="carol", is_staff=True),
    }
    users["viewer"].groups.add(viewers())
    scene.first.instance_group.admins.add(users["group admin"])
    sessions = {}
    for role, user in users.items():
        client = Client()
        if user is not None:
            client.force_login(user)
            sessions[role] = client.session.session_key
    _write_files(scene.first)
    return World(scene, users, sessions, _values(scene, users["cluster admin"]))


def _write_files(job: Job) -> None:
    """Write the files of a training."""
    folder = job_folder(job)
    current = folder.start_attempt(1)
    rank = job.ranks.order_by("rank")[0]
    log = current / "log" / f"{rank.member_id}.{rank.host}"
    log.mkdir()
    (log / "stdout").write_text("loss 0.1\n")
    (current / "metrics.jsonl").write_text("{}\n")
    (current / "checkpoint" / "step-1").mkdir()
    for part in CHECKPOINT_FILES:
        (current / "checkpoint" / "step-1" / part).write_text("{}")
    folder.code.mkdir(parents=True)
    (folder.code / "main.py").write_text("x = 1\n")


def _values(scene: Scene, carol: User) -> dict[str, Any]:
    alice, eve = scene.alice, UserFactory(username="eve")
    ivan = UserFactory(username="ivan")
    actions.deactivate(carol, ivan.pk)
    invitation = actions.invite(carol, "nina", Role.DATA_SCIENTIST)
    _, _, link, secret, _ = invitation.path.split("/")
    dataset = DatasetVersionFactory(dataset__owner=alice, dataset__name="unused", number=1).dataset
    DatasetVersionFactory(dataset=dataset, number=2)
    template = ModelTemplateFactory(name="unused", owner=alice)
    model = RegisteredModelVersionFactory(model__owner=alice, model__name="unused", number=1).model
    hidden = {"readers": Readers.OWNER, "owner": alice, "name": "kept"}
    kept = RegisteredModelVersionFactory(
        model=RegisteredModelFactory(**hidden), template=ModelTemplateFactory(**hidden), number=1
    )
    upload = Upload.objects.create(key="u" * 32, owner=alice, name="a.zip", size_bytes=3)
    spare = ResourceGroupFactory(name="spare")
    price = GpuPrice.objects.create(gpu_model="H200", valid_from=timezone.now().date(), per_hour=2)
    removed = HostFactory(name="removed", state=Host.State.OFFLINE, removed_at=timezone.now())
    sick = Slot.objects.create(
        host=scene.first.claims.all()[0].slot.host, index=99, sick_since=timezone.now(), sick_why="Xid 79"
    )
    joining = JoinToken.objects.create(
        digest="0" * 64, hosts_left=1, expires_at=timezone.now() + timedelta(hours=1), created_by="carol"
    )
    [changed] = change_job(scene.first.pk, JobChange(priority=6000), "alice")
    checkpoint = Checkpoint.objects.create(
        job=scene.first,
        attempt=1,
        step=1,
        epoch=0,
        path="attempt-1/checkpoint/step-1",
        size_bytes=1,
        sha256="0" * 64,
        created_at=timezone.now(),
    )
    version = ModelVersion.objects.create(job=scene.first, name="digits", number=1)
    ids, rank = identities(), scene.first.ranks.order_by("rank")[0]
    environment = prepared_environment("vision", "timm")
    prepared = RequiredEnvironment.objects.get(lines="timm")
    channel = add_channel(alice, "team", "webhook", "https://example.org/hook").row
    share = ShareLink.objects.create(
        report=scene.report,
        digest=digest_of("shared"),
        created_at=timezone.now(),
        expires_at=timezone.now() + timedelta(days=1),
    )
    saved = SavedFilter.objects.create(owner=alice, name="failed", parameters="state=FAILED")
    return {
        "job_id": scene.first.pk, "job": scene.first.pk, 
        "version_id": version.pk, "checkpoint_id": checkpoint.pk, "exec_id": f"wmla-{scene.first.pk}",
        "second job": scene.second.pk, "seq": changed.seq, "checkpoint": checkpoint.pk, "filter_id": saved.pk,
        "secret_id": own_secret(alice).pk,
        "channel_id": channel.pk, "channel": channel.pk,
        "rule_id": (rule := add_rule(alice, channel.pk, "training_failed")).pk, "rule": rule.pk,
        "report_id": scene.report.pk, "report": scene.report.pk,
        "block_id": (text := scene.report.blocks.get(kind="text")).pk, "block": text.pk,
        "reports link_id": share.pk, "link": share.pk, "shared secret": "shared",
        "dataset_id": scene.dataset.dataset_id, "index": 0,
        "template_id": scene.model.template_id, "model_id": scene.model.model_id,
        "group_id": scene.first.instance_group_id, "upload": upload.pk,
        "user_id": eve.pk, "token_id": make_token(alice, "ci", None).row.pk, "token": alice.api_tokens.get().pk,
        "users token": make_token(eve, "ci", None).row.pk, "users token_id": eve.api_tokens.get().pk,
        "host_id": scene.first.claims.all()[0].slot.host_id, "number": 1, "usage number": price.pk, "price": price.pk,
        "study_id": scene.study.pk, "study": scene.study.pk,
        "finished study": (over := finished_study(scene.done, timezone.now()).pk),
        "hpo_name": (search := f"alice-hpo-{scene.study.pk:016}"), "tuning": search, "new": "best-one",
        "finished search": f"alice-hpo-{over:016}",
        "algorithm": "Random",
        "replay": scene.replay.pk, "what-if number": scene.replay.pk,
        "resource-groups group_id": scene.first.instance_group.resource_group_id,
        "unused resource group": spare.pk, "spec": json.dumps({"name": "again", "slot_rule": "ngpus"}),
        "join-tokens token": joining.pk, "removed host": removed.name, "sick slot": sick.pk,
        "revision": InstanceGroup.objects.get(pk=scene.first.instance_group_id).revision,
        "link_id": link, "secret": secret,
        "users reference": "eve", "datasets reference": "digits", "templates reference": "digits-cnn",
        "models reference": "digits-cnn", "hosts reference": "gpu-host-1",
        "resource-groups reference": "ComputeHostsGPU", "instance-groups reference": "sig-elastic",
        "environments reference": "vision", "environment_id": environment.pk,
        "prepared environment": prepared.pk, "host": "gpu-host-1",
        "unnamed environment": RequiredEnvironment.of("unnamed").pk,
        "unused dataset": dataset.pk, "refused dataset": scene.refused.dataset_id,
        "kept template": kept.template_id, "kept model": kept.model_id,
        "unused template": template.pk, "unused model": model.pk,
        "sig_id": ids.group_id(scene.first.instance_group_id), "application_id": ids.driver_id(submitted(scene.first)),
        "executor_id": ids.executor_id(rank.job_id, rank.attempt, rank.member_id, 0), "stream": "stdout",
        "plan": "sig-elastic", "resource_group": "ComputeHostsGPU",
        "dataset": "digits", "template": "digits-cnn", "model": "digits-cnn", "file": "main.py",
        "training": scene.first.name, "validation": _validation(scene),
        "deactivated user": ivan.pk, "invited user": invitation.user.pk,
    }  # fmt: skip


def _validation(scene: Scene) -> str:
    """The name of one that waits."""
    terms = {name: getattr(scene.done, name) for name in ("owner", "model", "dataset", "instance_group")}
    job = JobFactory(**terms, name="measured", max_slots=1)
    Validation.objects.create(job=job, trained=scene.done)
    return job.name


def address_of(world: World, route: Route, rule: Rule, *, replaced: Mapping[str, str] | None = None) -> str:
    """Return the address that a rule asks for. replaced: texts for some of its parameters, also such as do not fit."""
    kind = route.pattern.removeprefix("api/v1/").split("/")[0]
    values = {}
    for name in route.parameters:
        chosen = world.named(rule.args[name]) if name in rule.args else None
        values[name] = chosen or world.values.get(f"{kind} {name}", world.values.get(name))
        assert values[name] is not None, f"say in _values what {name!r} of {route.name} stands for, or in its rule"
    query = rule.query.format_map(world.values)
    # Django's `reverse` would refuse a number that is too large.
    marks = {name: _MARK + place for place, name in enumerate(replaced or {}) if isinstance(values[name], int)}
    path = reverse(route.name, kwargs=values | marks)
    for name, text in (replaced or {}).items():
        before, _, after = path.rpartition(str(marks.get(name, values[name])))
        path = f"{before}{quote(text, safe='')}{after}"
    return f"{path}{'?' if query else ''}{query}"


def rule_like(route: Route) -> Rule:
    """Any of its rules: they know what stands in its address."""
    lines = [f"{method} {route.name}" for method in sorted(route.methods)]
    return next((rule_of(line) for line in lines if line in RULES), Rule(()))


def outcome(
    world: World,
    route: Route,
    method: str,
    rule: Rule,
    role: str,
    *,
    by_cookie_alone: bool = False,
    token: str = "",
) -> str:
    """Return the outcome of a request, whose changes are undone. by_cookie_alone: a browser's, without a form's token.

    token: to send in place of a cookie.
    """
    client = Client(raise_request_exception=False, enforce_csrf_checks=by_cookie_alone)
    if role in world.sessions and not token:
        client.cookies["tidepool_session"] = world.sessions[role]
    body = {name: world.named(value) for name, value in rule.body.items()}
    # Conductor's addresses require this header beside the cookie.
    sent: dict[str, Any] = {"headers": {"X-CSRFToken": csrf_token_of(world.sessions.get(role, ""))}}
    if token:
        sent["headers"] = {"Authorization": f"Bearer {token}"}
    if route.is_api and method not in ("GET", "HEAD"):
        sent |= {"content_type": "application/json", "data": json.dumps(body)}
    elif method == "POST":
        sent |= {"data": body}
    with transaction.atomic():
        response = getattr(client, method.lower())(address_of(world, route, rule), **sent)
        if response.streaming:
            b"".join(response.streaming_content)  # then it is closed
        transaction.set_rollback(True)
    return _read(response)


def _read(response: HttpResponse) -> str:
    status = response.status_code
    if status == 401 or (status == 302 and response["Location"].startswith("/login/?next=")):
        return LOGIN
    if status in (403, 404, 405):
        return {403: REFUSED, 404: MISSING, 405: NO_SUCH_METHOD}[status]
    # A page shows a refusal on the next page.
    if status == 302 and any(message.level >= ERROR for message in get_messages(response.wsgi_request)):
        return REFUSED
    # 503: without a broker the site is not well, and says so to everybody.
    return IN if (status < 500 and status != 429) or status == 503 else f"status {status}"
