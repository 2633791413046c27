"""Code that its owner keeps, or shows to a group, is not there for others at any address that names it."""

from dataclasses import replace

import pytest

from core.visibility import Readers
from jobs.models import InstanceGroup
from models_registry.models import ModelTemplate, RegisteredModel
from tests.permissions import IN, LOGIN, MISSING, REFUSED, ROLES, rule_of
from tests.webapp.permissions.matrix import LINES, ROUTES, World, outcome

pytestmark = pytest.mark.django_db

#: Parameter of an address, or of one below these -> what stands for it.
_KEPT = {
    "model_id": "kept model",
    "template_id": "kept template",
    "model": "kept model",
    "template": "kept template",
    "models reference": "kept model",
    "templates reference": "kept template",
}
#: An address of its own that looks like one of a model.
_NO_MODEL = " wmla:weight-upload"
_READS = ("GET models:detail", "GET api:model-files", "GET wmla:model", "GET wmla:template-files", "POST models:clone")


def _named(line: str) -> dict[str, str]:
    route = ROUTES[line.partition(" ")[2]]
    kind = route.pattern.removeprefix("api/v1/").split("/")[0]
    names = {name: _KEPT.get(f"{kind} {name}", _KEPT.get(name, "")) for name in route.parameters}
    return {name: value for name, value in names.items() if value}


def _answers(world: World, line: str) -> dict[str, str]:
    method, _, name = line.partition(" ")
    rule = rule_of(line)
    rule = replace(rule, args={**rule.args, **_named(line)})
    return {role: outcome(world, ROUTES[name], method, rule, role) for role in ROLES}


@pytest.mark.parametrize("line", [line for line in LINES if _named(line) and _NO_MODEL not in line])
def test_what_its_owner_keeps_is_missing_for_others(world: World, line: str) -> None:
    answers = _answers(world, line)
    # Pages of forms refuse viewers before they look for anything.
    rules = dict(zip(ROLES, rule_of(line).audience, strict=True))
    viewer = MISSING if line.startswith("GET ") and rules["viewer"] != REFUSED else REFUSED
    others = {"nobody": LOGIN, "viewer": viewer, "stranger": MISSING, "group admin": MISSING}
    assert {role: answers[role] for role in others} == others
    if line.startswith("GET ") and len(ROUTES[line.partition(" ")[2]].parameters) == 1:
        assert {role: answers[role] for role in ("owner", "cluster admin")} == {
            role: rules[role] for role in ("owner", "cluster admin")
        }


@pytest.mark.parametrize("line", _READS)
def test_a_group_reads_what_one_of_its_members_shows_it(world: World, line: str) -> None:
    group = InstanceGroup.objects.get(name="sig-elastic")
    group.members.add(world.scene.alice, world.users["stranger"])
    for rows in (RegisteredModel, ModelTemplate):
        rows.objects.filter(name="kept").update(readers=Readers.GROUP)

    answers = _answers(world, line)
    assert (answers["stranger"], answers["group admin"]) == (IN, MISSING)
