import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import UserError
from core.text import checked_name, is_readable_json, readable_text


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


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("loss\r\n\t0.5", "loss\n\t0.5"),
        ("100 %\rdone", "100 %\ufffddone"),
        ("\x9b2Jgone \x90q\x9c", "\ufffd2Jgone \ufffdq\ufffd"),
        ("a\x1b[31mred\x1b[0m \x1b]52;c;cm0gLXJm\x07b", "ared b"),
        ("x\u202egpj.exe", "x\ufffdgpj.exe"),
        ("a\u2066b\u2069 \u2028c\u2029", "a\ufffdb\ufffd \ufffdc\ufffd"),
        ("شبكة, 網路, Größe, e\u0301, \u200d", "شبكة, 網路, Größe, e\u0301, \u200d"),
    ],
)
def test_what_a_script_writes_commands_no_terminal_and_turns_no_text_around(written, read):
    assert readable_text({written: [written, 1, None]}) == {read: [read, 1, None]}
    assert readable_text(read) == read


@pytest.mark.parametrize("is_ascii", [True, False])
@pytest.mark.parametrize("letter", "\r\b\f\v\a\0\x1b\x7f\x85\x9b\u2028\u202e\u2067\ud800")
def test_no_such_character_is_overlooked_in_json(letter, is_ascii):
    assert not is_readable_json(json.dumps({"message": f"a{letter}b"}, ensure_ascii=is_ascii))
    assert is_readable_json(json.dumps({"message": "a\n\tb"}))
