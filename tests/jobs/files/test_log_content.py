"""A log as it is sent: whole, or its last lines, however long it and they are."""

from pathlib import Path

import pytest

from jobs.files.logs import Log, log_content


def log(folder: Path, content: bytes) -> Log:
    path = folder / "stdout"
    path.write_bytes(content)
    return Log(1, "node1.0.1", "node1", "stdout", 0, 1, False, path, folder)


def read(log: Log, last_lines: int | None = None) -> bytes:
    return b"".join(log_content(log, last_lines))


@pytest.mark.parametrize(
    "text", ["", "a", "a\n", "\n", "\n\n", "a\nb", "a\nb\n", "\n\nb", "a\n\nb\n\n", "a\nb\nc\nd\ne"]
)
def test_the_last_lines_are_those_at_the_end(tmp_path: Path, text: str) -> None:
    written = log(tmp_path, text.encode())
    lines = text.splitlines(keepends=True)
    for wanted in range(8):
        assert read(written, wanted).decode() == "".join(lines[len(lines) - wanted :] if wanted < len(lines) else lines)


@pytest.mark.parametrize("wanted", [1, 2, 3, 1000, 100_000])
def test_lines_longer_than_what_is_read_at_once_are_whole(tmp_path: Path, wanted: int) -> None:
    lines = [b"x" * 700_000 + b"\n", b"short\n", b"y" * 600_000 + b"\n", *[b"%d\n" % n for n in range(2000)], b"end"]
    assert read(log(tmp_path, b"".join(lines)), wanted) == b"".join(lines[-wanted:])


def test_it_is_sent_in_pieces(tmp_path: Path) -> None:
    pieces = list(log_content(log(tmp_path, b"z" * 2_000_000)))
    assert b"".join(pieces) == b"z" * 2_000_000
    assert max(map(len, pieces)) < 300_000


def test_one_that_is_not_there_is_empty(tmp_path: Path) -> None:
    absent = Log(1, "node1.0.1", "node1", "stdout", 0, 1, False, tmp_path / "stdout", tmp_path)
    assert read(absent) == read(absent, 5) == b""
