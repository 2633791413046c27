"""Lines of a log are the same from wherever they are read, and long ones cost no memory."""

import os
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.files.log_lines import PIECE_BYTES, SHOWN_LINE_BYTES, Lines, lines_after, lines_before

Opened = Callable[[bytes], int]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    descriptors = []

    def open_with(content: bytes) -> int:
        (tmp_path / "log").write_bytes(content)
        descriptors.append(os.open(tmp_path / "log", os.O_RDONLY))
        return descriptors[-1]

    yield open_with
    for descriptor in descriptors:
        os.close(descriptor)


def texts(lines: Lines) -> list[str]:
    shown = [*lines.lines, *([lines.unfinished] if lines.unfinished else [])]
    return ["".join(span.text for span in line.spans) for line in shown]


def test_forwards_and_backwards_meet_the_same_lines(opened: Opened) -> None:
    content = b"".join(b"line %d %s\n" % (number, b"x" * (number % 97)) for number in range(9_000)) + b"unfinished"
    log = opened(content)
    forwards, after = [], 0
    while (piece := lines_after(log, after)).lines:
        forwards += piece.lines
        after = piece.next
    backwards, before = [], after
    while before:
        piece = lines_before(log, before)
        backwards = piece.lines + backwards
        before = piece.start

    assert forwards == backwards
    assert len(forwards) == 9_000
    assert texts(lines_after(log, after)) == ["unfinished"]
    assert texts(lines_before(log, None))[-1] == "unfinished"
    assert lines_before(log, None).next == after


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from([b"a", b"\n", b"\r", b"\xc3", b"bc\n"]), max_size=30).map(b"".join))
def test_every_byte_is_in_one_line(content: bytes) -> None:
    log = os.memfd_create("log")
    try:
        os.write(log, content)
        piece = lines_after(log, 0)
        starts = [line.at for line in piece.lines] + ([piece.unfinished.at] if piece.unfinished else [])
        expected = [0, *(place + 1 for place, byte in enumerate(content) if byte == 10)]
        assert starts == [start for start in expected if start < len(content)]
        assert lines_before(log, None).lines == piece.lines
    finally:
        os.close(log)


def test_a_line_of_ten_megabytes_is_cut_in_constant_memory(opened: Opened) -> None:
    long = 10 * 1024**2
    log = opened(b"first\n" + b"y" * long + b"\nlast\n")
    tracemalloc.start()
    piece = lines_after(log, 6)
    back = lines_before(log, 6 + long + 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert [(line.at, line.cut_bytes) for line in piece.lines] == [(6, long + 1)]
    assert len(texts(piece)[0]) == SHOWN_LINE_BYTES
    assert piece.next == 6 + long + 1
    assert back.lines == piece.lines
    assert texts(lines_after(log, piece.next)) == ["last"]
    assert peak < 4 * 1024**2


def test_a_progress_bar_shows_its_newest_state(opened: Opened) -> None:
    bars = b"".join(b"\r%5d of 9999" % number for number in range(10_000))
    log = opened(bars)

    assert len(bars) > PIECE_BYTES
    assert texts(lines_after(log, 0)) == [" 9999 of 9999"]
    assert lines_after(log, 0).next == 0


def test_a_place_behind_the_end_is_the_end(opened: Opened) -> None:
    log = opened(b"one\n")

    assert lines_after(log, 10_000) == Lines(4, 4, 4)
