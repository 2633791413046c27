"""Each policy as a table: who asks for what, who gets how much."""

from dataclasses import replace
from typing import Any

import pytest

from scheduling.policies.demand import Demand, by_priority, by_submission
from scheduling.policies.shares import shares_of
from tests.scheduling.cluster import group


def asks(number: int, weight: int = 5000, *, least: int = 1, most: int = 8, held: int | None = None) -> Demand:
    """Job `number`, submitted at second `number`; `held` if it runs."""
    return Demand(number, weight, float(number), least, most, running=held is not None, held=held or 0)


Table = list[tuple[str, list[Demand], int, bool, dict[int, int]]]


def table(rows: Table) -> Any:
    return pytest.mark.parametrize(
        ("demands", "capacity", "preemption", "expected"), [row[1:] for row in rows], ids=[row[0] for row in rows]
    )


FAIR_SHARE: Table = [
    ("nobody asks", [], 8, True, {}),
    ("one job gets all it asks", [asks(1)], 8, True, {1: 8}),
    ("never more than its maximum", [asks(1, most=3)], 8, True, {1: 3}),
    ("equal priorities share equally", [asks(1, held=8), asks(2)], 8, True, {1: 4, 2: 4}),
    ("twice the priority gets five of eight", [asks(1, held=4), asks(2, 10000, held=4)], 8, True, {1: 3, 2: 5}),
    (
        "the lowest priority keeps its minimum",
        [asks(1, 10000), asks(2, 10000), asks(3, 1)],
        8,
        True,
        {1: 4, 2: 3, 3: 1},
    ),
    ("a tie of fractions goes to the higher priority", [asks(1, 1), asks(2, 3)], 6, True, {1: 1, 2: 5}),
    ("half a slot each goes to the earlier", [asks(1), asks(2)], 5, True, {1: 3, 2: 2}),
    ("what one cannot use goes to the others", [asks(1, most=2), asks(2), asks(3)], 8, True, {1: 2, 2: 3, 3: 3}),
    ("a high minimum is met before shares", [asks(1, least=6), asks(2), asks(3)], 8, True, {1: 6, 2: 1, 3: 1}),
    ("a minimum that does not fit waits", [asks(1, least=6, held=8), asks(2, least=3)], 8, True, {1: 8}),
    (
        "running minimums come before a higher priority",
        [asks(1, 1, least=6, held=6), asks(2, 9000, least=4)],
        8,
        True,
        {1: 8},
    ),
    ("nobody overtakes who waits", [asks(1, least=6, held=6), asks(2, least=3), asks(3)], 8, True, {1: 8}),
    ("who can never fit stands in nobody's way", [asks(1, 9000, least=9, most=9), asks(2)], 8, True, {2: 8}),
    ("who waits is served by priority", [asks(1, 1, least=5), asks(2, 2, least=5)], 8, True, {2: 8}),
    ("who waits is served by age", [asks(1, least=5), asks(2, least=5)], 8, True, {1: 8}),
    ("more jobs than slots", [asks(n) for n in range(1, 6)], 3, True, {1: 1, 2: 1, 3: 1}),
    ("without preemption nothing shrinks", [asks(1, held=6), asks(2, 10000)], 8, False, {1: 6, 2: 2}),
    ("without preemption nothing is left to start on", [asks(1, held=8), asks(2, 10000)], 8, False, {1: 8}),
    (
        "without preemption free slots go to who is below",
        [asks(1, held=4), asks(2, held=1), asks(3)],
        8,
        False,
        {1: 4, 2: 2, 3: 2},
    ),
    ("a lowered maximum shrinks even without preemption", [asks(1, most=4, held=6), asks(2)], 8, False, {1: 4, 2: 4}),
]

FIFO: Table = [
    ("the first takes all it asks", [asks(1), asks(2)], 8, False, {1: 8}),
    ("the next takes what is left", [asks(1, most=5), asks(2)], 8, False, {1: 5, 2: 3}),
    ("priority means nothing", [asks(1, 1, most=6), asks(2, 10000)], 8, False, {1: 6, 2: 2}),
    ("nobody is shrunk for an earlier job", [asks(1), asks(2, held=8)], 8, True, {2: 8}),
    ("an earlier one grows first", [asks(1, held=2), asks(2, held=2)], 8, False, {1: 6, 2: 2}),
    ("nobody overtakes who waits", [asks(1, most=5, least=5), asks(2, least=4), asks(3)], 8, False, {1: 5}),
    ("nobody grows past who waits", [asks(1, least=5, most=5), asks(2, held=4)], 8, False, {2: 4}),
    ("who can never fit stands in nobody's way", [asks(1, least=9, most=9), asks(2)], 8, False, {2: 8}),
    ("who needs all slots is waited for", [asks(1, most=1, held=1), asks(2, least=8), asks(3)], 8, True, {1: 1}),
]

PRIORITY: Table = [
    ("higher takes all it asks", [asks(1), asks(2, 6000)], 8, True, {2: 8}),
    ("lower takes what is left", [asks(1), asks(2, 6000, most=5)], 8, True, {1: 3, 2: 5}),
    ("lower is shrunk", [asks(1, held=8), asks(2, 6000, most=5)], 8, True, {1: 3, 2: 5}),
    (
        "lower is stopped where its minimum does not fit",
        [asks(1, least=4, held=8), asks(2, 6000, most=5)],
        8,
        True,
        {2: 5},
    ),
    (
        "the lowest is stopped first",
        [asks(1, 1, held=4), asks(2, 2, held=4), asks(3, 3, most=6)],
        8,
        True,
        {2: 2, 3: 6},
    ),
    ("equals take nothing from each other", [asks(1), asks(2, held=8)], 8, True, {2: 8}),
    (
        "among equals the later shrinks first",
        [asks(1, held=4), asks(2, held=4), asks(3, 9000, most=3)],
        8,
        True,
        {1: 4, 2: 1, 3: 3},
    ),
    ("a fixed size is kept or stopped", [asks(1, least=4, most=4, held=4), asks(2, 9000, most=5)], 8, True, {2: 5}),
    (
        "lower runs on what a waiting higher cannot use",
        [asks(1, 9000, most=6, held=6), asks(2, 8000, least=4), asks(3, 1)],
        8,
        True,
        {1: 6, 3: 2},
    ),
    ("without preemption nothing shrinks", [asks(1, held=8), asks(2, 6000)], 8, False, {1: 8}),
    ("without preemption higher grows first", [asks(1, held=2), asks(2, 6000, held=2)], 8, False, {1: 2, 2: 6}),
    (
        "without preemption nobody overtakes who waits",
        [asks(1, held=5), asks(2, 6000, least=4), asks(3)],
        8,
        False,
        {1: 5},
    ),
    (
        "nobody grows behind one that is stopped and waits again",
        [asks(1, 9000, least=5, most=5), asks(2, least=4, most=4, held=4), asks(3, most=3, held=1)],
        8,
        True,
        {1: 5, 3: 1},
    ),
    (
        "of equals the protected one stays",
        [asks(1, 9000, most=2), asks(2, least=2, held=2), replace(asks(3, least=2, held=2), protected=True)],
        4,
        True,
        {1: 2, 3: 2},
    ),
]


@table(FAIR_SHARE)
def test_fairshare(demands: list[Demand], capacity: int, preemption: bool, expected: dict[int, int]) -> None:
    assert shares_of(group("fairshare", preemption=preemption), by_priority(demands), capacity) == expected


@table(FIFO)
def test_fifo(demands: list[Demand], capacity: int, preemption: bool, expected: dict[int, int]) -> None:
    assert shares_of(group("fifo", preemption=preemption), by_submission(demands), capacity) == expected


@table(PRIORITY)
def test_priority(demands: list[Demand], capacity: int, preemption: bool, expected: dict[int, int]) -> None:
    assert shares_of(group("priority", preemption=preemption), by_priority(demands), capacity) == expected
