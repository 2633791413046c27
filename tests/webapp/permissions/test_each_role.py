"""Every method of every address is asked for in every role, and answers as tests/permissions.py says."""

from collections.abc import Iterator

import pytest
from django.urls import URLResolver, get_resolver

from tests.permissions import ROLES, RULES, rule_of
from tests.webapp.permissions.matrix import LINES, ROUTES, World, outcome

pytestmark = pytest.mark.django_db


def test_every_method_of_every_address_has_its_line() -> None:
    missing = sorted(set(LINES) - set(RULES))
    gone = sorted(set(RULES) - set(LINES))
    assert missing == [], "add a line with the audience that it is for to RULES in tests/permissions.py"
    assert gone == [], "take these lines out of tests/permissions.py: there is nothing like them any more"


def test_only_the_answer_for_unknown_addresses_has_no_name() -> None:
    def unnamed(resolver: URLResolver) -> Iterator[str]:
        for each in resolver.url_patterns:
            if isinstance(each, URLResolver):
                yield from unnamed(each)
            elif not each.name:
                yield each.lookup_str

    assert list(unnamed(get_resolver())) == ["webapp.api.UnknownAddress", *["wmla.base_view.UnknownAddress"] * 5]


@pytest.mark.parametrize("line", sorted(set(LINES) & set(RULES)))
def test_each_role_gets_what_it_may(world: World, line: str) -> None:
    method, _, name = line.partition(" ")
    rule = rule_of(line)

    answers = {role: outcome(world, ROUTES[name], method, rule, role) for role in ROLES}
    assert answers == dict(zip(ROLES, rule.audience, strict=True))
