"""Each parameter of WMLA by its names: what it sets, or why it sets nothing."""

from typing import Any

import pytest

from jobs.models import InstanceGroup
from jobs.queries.group_parameters import PARAMETERS, Parameter, ParameterError, matches, of_field, read_lines, twin

MEANINGS: list[tuple[str, str, dict[str, Any]]] = [
    ("SPARK_EGO_APP_SCHEDULE_POLICY", "fairshare", {"policy": "fairshare"}),
    ("SPARK_EGO_APP_SCHEDULE_POLICY", "FIFO", {"policy": "fifo"}),
    ("SPARK_EGO_APP_SCHEDULE_POLICY", "priority", {"policy": "priority"}),
    ("SPARK_EGO_ENABLE_PREEMPTION", "true", {"preemption": True}),
    ("SPARK_EGO_ENABLE_PREEMPTION", "False", {"preemption": False}),
    ("SPARK_EGO_RECLAIM_GRACE_PERIOD", "120", {"reclaim_grace_seconds": 120}),
    ("SPARK_EGO_PRIORITY", "5000", {"default_priority": 5000}),
]


@pytest.mark.parametrize(("name", "value", "terms"), MEANINGS)
def test_what_has_a_meaning_sets_it_under_both_names(name: str, value: str, terms: dict[str, Any]) -> None:
    for written in (name, twin(name)):
        assert read_lines(f"{written}={value}").terms == terms


def test_every_parameter_with_a_meaning_is_in_the_table_above() -> None:
    assert {name for name, *_ in MEANINGS} == {parameter.name for parameter in PARAMETERS if parameter.has_effect}
    columns = {field.name for field in InstanceGroup._meta.get_fields()}
    assert {parameter.field for parameter in PARAMETERS} - {""} <= columns


@pytest.mark.parametrize("parameter", [each for each in PARAMETERS if not each.has_effect], ids=lambda each: each.name)
def test_what_has_none_is_taken_and_says_why(parameter: Parameter) -> None:
    given = read_lines(f"{parameter.name}=1")

    assert given.terms == {}
    assert given.sentences == [f"{parameter.name} has no effect here: {parameter.words}"]
    assert parameter.words.endswith(".")


@pytest.mark.parametrize(
    "name", ["spark.ego.slots.required", "spark.ego.executor.idle.timeout", "egoSlotRequiredTimeout"]
)
def test_the_names_that_ibms_pages_use_are_known(name: str) -> None:
    assert [written for written, _ in read_lines(f"{name}=6000").without_effect] == [name]


def test_lines_may_have_blanks_comments_and_quotes() -> None:
    given = read_lines('# of the tutorial\n\n SPARK_EGO_PRIORITY = "7" \nSPARK_EGO_SLOTS_MAX=8\n')

    assert given.terms == {"default_priority": 7}
    assert len(given.without_effect) == 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("SPARK_EGO_PRIORTY=5", "Parameter 'SPARK_EGO_PRIORTY' is not known: did you mean SPARK_EGO_PRIORITY?"),
        ("spark.ego.enable.premption=true", "did you mean SPARK_EGO_ENABLE_PREEMPTION?"),
        ("COLOUR=red", "Parameter 'COLOUR' is not known: see the list of parameters under Configuration."),
        ("fairshare", "Line 1 is not a parameter: write it as NAME=value."),
        ("\n=5", "Line 2 is not a parameter"),
        ("SPARK_EGO_PRIORITY=1\nSPARK_EGO_PRIORITY=2", "Line 2 sets 'SPARK_EGO_PRIORITY' again"),
        (
            "SPARK_EGO_PRIORITY=1\nspark.ego.priority=2",
            "spark.ego.priority is already set under its other name",
        ),
        ("SPARK_EGO_PRIORITY=high", "SPARK_EGO_PRIORITY must be a whole number, not 'high'."),
        ("SPARK_EGO_PRIORITY=-1", "must be a whole number, not '-1'"),
        ("SPARK_EGO_PRIORITY=", "must be a whole number, not ''"),
        ("SPARK_EGO_RECLAIM_GRACE_PERIOD=99999999999", "SPARK_EGO_RECLAIM_GRACE_PERIOD must be a whole number"),
        ("SPARK_EGO_ENABLE_PREEMPTION=yes", "SPARK_EGO_ENABLE_PREEMPTION must be true or false, not 'yes'."),
        ("SPARK_EGO_APP_SCHEDULE_POLICY=hierarchy", "hierarchy needs a tree of consumers"),
        ("SPARK_EGO_APP_SCHEDULE_POLICY=lottery", "must be one of fairshare, priority, fifo, goodput, not 'lottery'"),
        ("<script>\u202e=1", "Parameter '<script>\\u202e' is not known"),
    ],
)
def test_what_cannot_be_meant_is_named(text: str, sentence: str) -> None:
    with pytest.raises(ParameterError) as refusal:
        read_lines(text)
    assert sentence in str(refusal.value)


@pytest.mark.parametrize(
    ("search", "found"), [("preemption", True), ("spark.ego.enable", True), ("ENABLE", True), ("java", False)]
)
def test_the_search_looks_at_both_names_and_the_words(search: str, found: bool) -> None:
    parameter = of_field("preemption")
    assert parameter is not None
    assert matches(parameter, search) is found
