"""Whatever a script writes becomes text in known styles."""

import unicodedata

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.files.log_lines import STYLES, Span, styled, visible

#: Bytes that terminals act upon come up often.
PIECES = st.sampled_from(
    [
        b"\x1b",
        b"[",
        b"]",
        b"31",
        b"38;5;196",
        b"38;2;1;2;3",
        b";",
        b"m",
        b"\x07",
        b"8;;http://x",
        b"\\",
        b"\r",
        b"\x9b",
        b"A",
    ]
)
LINES = st.lists(PIECES | st.binary(max_size=6), max_size=40).map(b"".join)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(LINES)
def test_nothing_but_text_in_known_styles_comes_out(line: bytes) -> None:
    for span in styled(line):
        assert span.text
        assert set(span.style.split()) <= STYLES
        assert [c for c in span.text if unicodedata.category(c) in {"Cc", "Cs"} and c != "\t"] == []
        assert not set(span.text) & set("\u202e\u2066\u2028\u200f")


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(st.characters(exclude_categories=["Cc", "Cs", "Cf", "Zl", "Zp"])))
def test_plain_text_is_kept_as_it_is(text: str) -> None:
    assert visible(text.encode()) == text


@pytest.mark.parametrize(
    ("line", "spans"),
    [
        (b"plain\r\n", [Span("plain")]),
        (
            b"\x1b[31mred\x1b[0m and \x1b[1;42mbold\x1b[m",
            [Span("red", "red"), Span(" and "), Span("bold", "bold on-green")],
        ),
        (b"\x1b[38;5;196mx\x1b[48;2;0;0;250my", [Span("x", "red"), Span("y", "red on-blue")]),
        (b"\x1b[1mb\x1b[22mn\x1b[4mu\x1b[24m.", [Span("b", "bold"), Span("n"), Span("u", "underline"), Span(".")]),
        (b"\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", [Span("link")]),
        (b"\x1b]0;title\x07text\x07", [Span("text")]),
        (b"\x1b[2J\x1b[H\x1b[10;10Hmoved\x1b[K", [Span("moved")]),
        (b" 10 %|#   |\r 20 %|##  |\r", [Span(" 20 %|##  |")]),
        (b"<b>&amp;</b>", [Span("<b>&amp;</b>")]),
        (b"cut \x1b[3", [Span("cut ")]),
    ],
)
def test_what_a_terminal_would_show(line: bytes, spans: list[Span]) -> None:
    assert styled(line) == spans
