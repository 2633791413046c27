"""A token opens no more than its scope, at every address of the API; what it opens, its user's role decides."""

from collections.abc import Mapping

import pytest
from django.test import Client

from accounts.models import ApiToken
from accounts.tokens import make_token
from tests.permissions import (
    CHANGERS,
    IN,
    LOGIN,
    ONLY_OWNER_CHANGES,
    OWNER_CHANGES,
    REFUSED,
    ROLES,
    SEEN_OWNER_CHANGES,
    rule_of,
)
from tests.webapp.permissions.matrix import LINES, ROUTES, World, outcome

pytestmark = pytest.mark.django_db

#: `full` opens what a session does, of which test_each_role.py asks.
_SCOPES = ("read", "submit", "job")
#: Needs no log-in, or takes a password alone.
_OPEN = [line for line in LINES if rule_of(line).audience[0] == IN]
_API = [line for line in LINES if ROUTES[line.partition(" ")[2]].is_api and line not in _OPEN]
#: Requests that any token may make.
_ITS_OWN = {"GET api:me", "GET api:my-current-token", "DELETE api:my-current-token"}
#: Users who may change their own objects may do so with `submit`, except for tokens, secrets, alerts and reports;
#: filters of the list are their own objects, too.
_MAKERS = (CHANGERS, OWNER_CHANGES, SEEN_OWNER_CHANGES, ONLY_OWNER_CHANGES)
_NOT_BY_SUBMIT = {"POST api:token", "POST api:my-tokens", "POST api:secrets", "PATCH api:secret", "DELETE api:secret"}
_BY_SUBMIT = {"POST api:job-filters", "DELETE api:job-filter"}
#: Make other trainings, or models, than the one training that a token of scope `job:N` opens.
_MAKE_OTHERS = {"POST api:job-clone", "POST api:job-validations", "POST api:job-checkpoint-version"}


@pytest.fixture
def tokens(world: World) -> Mapping[str, str]:
    job = f"job:{world.scene.first.pk}"
    return {
        scope: make_token(world.scene.alice, scope, None, job if scope == "job" else scope).text for scope in _SCOPES
    }


def _opens(scope: str, line: str) -> bool:
    method, _, name = line.partition(" ")
    if line in _ITS_OWN:
        return True
    if scope == "job":
        is_of_job = name.startswith("api:job") and ROUTES[name].parameters[:1] == ("job",)
        return is_of_job and line not in _MAKE_OTHERS
    if method == "GET":
        return True
    by_submit = (
        rule_of(line).audience in _MAKERS
        and not name.startswith(("wmla:", "api:alert", "api:report"))
        and line not in _NOT_BY_SUBMIT
    )
    return scope == "submit" and (by_submit or line in _BY_SUBMIT)


@pytest.mark.parametrize("line", _API)
def test_each_scope_opens_what_it_says(world: World, tokens: Mapping[str, str], line: str) -> None:
    method, _, name = line.partition(" ")
    rule = rule_of(line)
    owners = dict(zip(ROLES, rule.audience, strict=True))["owner"]
    by_token = IN if name == "api:my-current-token" else owners

    # `submit` may read all that `read` may.
    scopes = _SCOPES if method != "GET" else ("read", "job")
    answers = {scope: outcome(world, ROUTES[name], method, rule, "owner", token=tokens[scope]) for scope in scopes}

    if owners == LOGIN:  # only a password works
        assert set(answers.values()) == {LOGIN}
    else:
        assert answers == {scope: by_token if _opens(scope, line) else REFUSED for scope in scopes}


@pytest.mark.parametrize("line", [line for line in _API if ROUTES[line.partition(" ")[2]].parameters[:1] == ("job",)])
def test_a_token_of_a_training_opens_no_other(world: World, line: str) -> None:
    method, _, name = line.partition(" ")
    other = make_token(world.scene.alice, "other", None, f"job:{world.scene.second.pk}").text

    assert outcome(world, ROUTES[name], method, rule_of(line), "owner", token=other) == REFUSED


def test_a_token_of_one_training_reads_no_metrics_of_the_site(world: World) -> None:
    carol, job = world.users["cluster admin"], world.scene.first
    job.__class__.objects.filter(pk=job.pk).update(owner=carol)
    made = {scope: make_token(carol, scope, None, scope).text for scope in ("read", f"job:{job.pk}")}

    headers = [{"authorization": f"Bearer {text}"} for text in made.values()]
    assert [Client().get("/metrics", headers=sent).status_code for sent in headers] == [200, 401]


def test_it_ends_itself_whatever_its_scope(world: World, tokens: Mapping[str, str]) -> None:
    for text in tokens.values():
        headers = {"authorization": f"Bearer {text}"}
        assert Client().delete("/api/v1/me/tokens/current/", headers=headers).status_code == 204
        assert Client().get("/api/v1/me/", headers=headers).status_code == 401
    assert not ApiToken.objects.filter(name__in=_SCOPES).exists()
