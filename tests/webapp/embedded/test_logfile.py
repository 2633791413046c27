from __future__ import annotations

from pathlib import Path

from webapp.embedded.logfile import open_log, rotate


def test_a_log_past_its_limit_moves_aside_and_its_writer_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "web.log"
    with open_log(path) as log:
        log.write(b"first line\n")
        assert not rotate(path, limit_bytes=11)
        log.write(b"second line\n")
        assert rotate(path, limit_bytes=11)
        log.write(b"third line\n")
    assert path.read_text() == "third line\n"
    assert (tmp_path / "logs" / "web.log.1").read_text() == "first line\nsecond line\n"


def test_a_second_rotation_replaces_the_first(tmp_path: Path) -> None:
    path = tmp_path / "web.log"
    for line in (b"one\n", b"two\n"):
        with open_log(path) as log:
            log.write(line)
        assert rotate(path, limit_bytes=0)
    assert (tmp_path / "web.log.1").read_text() == "two\n"
    assert path.read_text() == ""


def test_a_log_that_is_not_there_needs_no_rotation(tmp_path: Path) -> None:
    assert not rotate(tmp_path / "web.log")
