"""Test what two people get who edit a row at once: fields of one of them merge, fields of both are asked about."""

from datetime import UTC, datetime
from typing import Any

import pytest

from core.edits import Author, Clash, EditConflict, Merge, Outdated, Seen, etag_of, merge

AT = datetime(2026, 11, 28, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("before", "mine", "present", "stored"),
    [
        # A field that the user did not touch follows the present.
        ({"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 9, "b": 1}, {"b": 2}),
        ({"a": None}, {"a": None}, {"a": 4}, {}),
        # Both have set the same.
        ({"a": 1}, {"a": 2}, {"a": 2}, {"a": 2}),
        # A field whose former value is not known counts as changed by nobody else.
        ({}, {"a": 2}, {"a": 9}, {"a": 2}),
        ({"b": 1}, {"a": 2}, {"a": 9, "b": 1}, {"a": 2}),
        # A field that is not sent stays.
        ({"a": 1, "b": 1}, {"b": 2}, {"a": 9, "b": 1}, {"b": 2}),
        # The order of a list does not count, and items that one side adds or removes leave the other's alone.
        ({"a": ["x", "y"]}, {"a": ["y", "x"]}, {"a": ["z"]}, {}),
        ({"a": ["x"]}, {"a": ["x", "y"]}, {"a": ["x", "z"]}, {"a": ["x", "y", "z"]}),
        ({"a": ["x", "y", "z"]}, {"a": ["x", "z"]}, {"a": ["x", "y"]}, {"a": ["x"]}),
    ],
)
def test_what_one_of_them_touched_is_stored(before: dict, mine: dict, present: dict, stored: dict) -> None:
    assert merge(before, mine, present) == Merge(stored)


@pytest.mark.parametrize(
    ("before", "mine", "present"),
    [
        (5000, 7000, 6100),
        (None, 0, 4),
        (False, True, None),
        ("", "mine", "theirs"),
        # Nobody is named: that may mean everybody, so it is no removal of single names.
        ([], ["x"], ["y"]),
        (["x"], [], ["x", "y"]),
        (["x", "y"], ["y"], []),
    ],
)
def test_what_both_set_otherwise_is_asked(before: Any, mine: Any, present: Any) -> None:
    result = merge({"a": before, "b": 1}, {"a": mine, "b": 2}, {"a": present, "b": 1})
    assert result == Merge({"b": 2}, (Clash("a", before, mine, present),))
    assert result.wanted == {"a": mine, "b": 2}


def test_a_conflict_says_who_changed_what() -> None:
    seen = Seen({"priority": 5000})
    with pytest.raises(EditConflict) as refusal:
        seen.merged({"priority": 7000}, {"priority": 6100}, lambda: {"priority": Author("carol", AT)})
    assert (refusal.value.status, refusal.value.code) == (409, "edit_conflict")
    assert refusal.value.fields == {
        "priority": ["carol changed priority from 5000 to 6100 at 28 Nov 2026, 12:00 UTC, and you to 7000."]
    }
    assert refusal.value.authors["priority"].at == AT


def test_the_authors_are_not_looked_up_without_a_conflict() -> None:
    def authors() -> dict[str, Author]:
        raise AssertionError

    assert Seen({"a": 1}).merged({"a": 2}, {"a": 1}, authors) == {"a": 2}


def test_an_etag_is_that_of_the_values_in_any_order() -> None:
    tag = etag_of({"a": 1, "b": ["x"]})
    assert tag == etag_of({"b": ["x"], "a": 1})
    assert tag != etag_of({"a": 2, "b": ["x"]})
    assert Seen(etags=('"other"', tag)).merged({"a": 3}, {"a": 1, "b": ["x"]}, dict) == {"a": 3}
    with pytest.raises(Outdated) as refusal:
        Seen(etags=(tag,)).merged({"a": 3}, {"a": 2, "b": ["x"]}, dict)
    assert refusal.value.status == 412
