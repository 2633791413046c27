"""Numbers in addresses that no row can have: there is nothing, in every database, and no mistake of ours."""

from dataclasses import replace

import pytest

from tests.permissions import rule_of
from tests.webapp.permissions.matrix import LINES, ROUTES, World, outcome

pytestmark = pytest.mark.django_db

#: More than any column holds.
_LARGE = 10**23


def _numbers(line: str) -> list[str]:
    route = ROUTES[line.partition(" ")[2]]
    return [name for name in route.parameters if f"<int:{name}>" in route.pattern]


@pytest.mark.parametrize("line", [line for line in LINES if _numbers(line)])
def test_there_is_nothing_of_a_number_that_no_row_can_have(world: World, line: str) -> None:
    method, _, name = line.partition(" ")
    rule = rule_of(line)
    for number in _numbers(line):
        asked = replace(rule, args={**rule.args, number: _LARGE})
        answer = outcome(world, ROUTES[name], method, asked, "cluster admin")
        assert not answer.startswith("status"), number
