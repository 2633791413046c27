"""Slot rules compute what they say, and nothing that is typed into them does harm."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.slot_formula import MAX_SLOTS, Attributes, FormulaError, parse

HOST = Attributes(ncpus=8, ngpus=4, maxmem=65536, nprocs=2, ncores=2, nthreads=2)


@pytest.mark.parametrize(
    ("rule", "slots"),
    [
        ("ngpus", 4),
        ("ncpus*2", 16),
        (" ncpus * 2 ", 16),
        ("3", 3),
        ("7 * ncpus", 56),
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("10 - 2 - 3", 5),
        ("ncpus / 3", 2),
        ("ncpus // 3 * 3", 6),
        ("ncpus % 5", 3),
        ("-ngpus", 0),
        ("--ngpus", 4),
        ("min(ngpus, 2)", 2),
        ("max(ngpus, 2, 6)", 6),
        ("floor(maxmem / 20000)", 3),
        ("ngpus * (maxmem >= 65536)", 4),
        ("ngpus * (ncpus < 8)", 0),
        ("1.9", 1),
        ("nprocs * ncores * nthreads", 8),
        ("ngpus and ncpus", 1),
        ("ngpus * (ncpus > 4 or maxmem > 100000)", 4),
        ("virtual or ngpus > 8", 0),
    ],
)
def test_a_rule_gives_these_slots(rule, slots):
    assert parse(rule).slots(HOST) == slots


@pytest.mark.parametrize(
    ("rule", "position"),
    [
        ("", 1),
        ("ngpus +", 8),
        ("ngpus ncpus", 7),
        ("ngpus $ 2", 7),
        ("2 ** 3", 4),
        ("nsockets", 1),
        ("ngpus and", 10),
        ("ngpus > 0 and ncpu > 4", 15),
        ("not", 4),
        ("ngpus & ncpus", 7),
        ("not " * 30 + "1", 85),
        ("ncpus.real", 6),
        ("__import__('os')", 1),
        ("(ngpus", 7),
        ("ngpus)", 6),
        ("min()", 5),
        ("min", 4),
        ("floor(1, 2)", 1),
        ("1 < 2 < 3", 7),
        ("9999999999999999", 1),
        ("(" * 30 + "1" + ")" * 30, 21),
        ("1" * 201, 201),
        ("lambda: 1", 7),
        ("[1]", 1),
        ("'4'", 1),
        ("n\u0440cpus", 2),
    ],
)
def test_a_mistake_is_named_with_its_position(rule, position):
    with pytest.raises(FormulaError) as caught:
        parse(rule)
    assert caught.value.position == position
    assert f"(at character {position})" in str(caught.value)


@pytest.mark.parametrize(
    ("requirement", "is_met"),
    [
        ("ngpus > 0", True),
        ("ngpus > 0 and not virtual", True),
        ("ngpus > 0 && !(ncpus == 8)", False),
        ("ngpus > 4 || ncpus > 4 and nthreads == 1", False),
        ("not ngpus or ncpus", True),
        ("not not 3", True),
        ("virtual and 1 / 0", False),
        ("0.5", True),
    ],
)
def test_a_host_meets_a_requirement(requirement, is_met):
    assert parse(requirement).is_met(HOST) is is_met


def test_what_is_not_known_is_answered_with_what_there_is():
    with pytest.raises(FormulaError, match="use ngpus, ncpus, nprocs, ncores, nthreads, maxmem, maxswp, virtual, min"):
        parse("nsockets")


def test_what_a_host_does_not_report_is_named():
    with pytest.raises(FormulaError, match="this host does not report maxswp") as caught:
        parse("ngpus + maxswp").slots(HOST)
    assert caught.value.position == 9


@pytest.mark.parametrize("rule", ["1 / 0", "ngpus % (ncpus - 8)", "1000000*1000000*1000000", "maxmem"])
def test_a_rule_that_cannot_be_computed_for_a_host_says_so(rule):
    with pytest.raises(FormulaError):
        parse(rule).slots(HOST)


_words = st.sampled_from(
    [
        "ncpus",
        "ngpus",
        "maxmem",
        "min(",
        "max(",
        "floor(",
        "(",
        ")",
        ",",
        "+",
        "-",
        "*",
        "/",
        "//",
        "%",
        "<",
        ">=",
        "2",
        "0",
        "and",
        "not",
        "||",
        "!",
        "nthreads",
    ]
)


@settings(max_examples=300)
@given(st.one_of(st.text(max_size=210), st.lists(_words, max_size=30).map(" ".join)))
def test_any_text_gives_slots_or_a_formula_error(text):
    try:
        slots = parse(text).slots(HOST)
    except FormulaError:
        return
    assert 0 <= slots <= MAX_SLOTS


@given(st.integers(0, 512), st.integers(0, 16), st.integers(0, 2**21))
def test_arithmetic_agrees_with_pythons(ncpus, ngpus, maxmem):
    expected = math.floor(ncpus * 2 + min(ngpus, 3) - maxmem // 4096 % 7)
    slots = parse("ncpus*2 + min(ngpus, 3) - maxmem//4096 % 7").slots(Attributes(ncpus, ngpus, maxmem))
    assert slots == max(expected, 0)
