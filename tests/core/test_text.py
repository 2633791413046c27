from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import UserError
from core.text import checked_name


@pytest.mark.parametrize("name", ["digits", "Ziffern für März", "数字", "a.b-c_d (2)", "x" * 255, "  padded  "])
def test_ordinary_names_pass(name):
    assert checked_name(name) == name.strip()


@pytest.mark.parametrize(
    "name",
    ["", "   ", "x" * 256, "a\0b", "a\nb", "a\x1b[31m", "\ud800", "a\u202eb", "a\u2028b", "../up", "a\\b", ".hidden"],
)
def test_names_that_would_do_harm_are_refused_with_a_sentence(name):
    with pytest.raises(UserError) as caught:
        checked_name(name)
    assert caught.value.fields["name"] == [caught.value.message]
    assert caught.value.message.endswith(".")


def test_equal_names_are_equal_however_they_were_typed():
    assert checked_name("Ma\u0308rz") == checked_name("M\u00e4rz")


@given(st.text())
def test_a_name_that_passed_passes_again_unchanged(text):
    with suppress(UserError):
        name = checked_name(text)
        assert checked_name(name) == name
