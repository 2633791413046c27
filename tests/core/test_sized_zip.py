import io
import os
import zipfile
from functools import partial
from pathlib import Path

import pytest

from core import sized_zip
from core.sized_zip import SizedZip, ZipEntry


def opened(path: Path) -> int:
    return os.open(path, os.O_RDONLY)


def entry(path: Path, name: str = "") -> ZipEntry:
    return ZipEntry(name or path.name, opened(path), partial(opened, path))


@pytest.mark.parametrize("sizes", [[], [0], [1, 300_000, 0], [5] * 300])
def test_its_size_is_what_is_sent_and_its_content_what_was_there(tmp_path: Path, sizes: list[int]) -> None:
    files = [tmp_path / f"{number}-é" for number in range(len(sizes))]
    for number, (file, size) in enumerate(zip(files, sizes, strict=True)):
        file.write_bytes(bytes([number % 256]) * size)

    zipped = SizedZip(map(entry, files))
    sent = b"".join(zipped.chunks())

    assert len(sent) == zipped.size_bytes
    with zipfile.ZipFile(io.BytesIO(sent)) as archive:
        assert archive.testzip() is None
        assert {info.filename: info.file_size for info in archive.infolist()} == {
            file.name: size for file, size in zip(files, sizes, strict=True)
        }


@pytest.mark.parametrize("limit", [10, 100, 1000])
def test_its_size_is_right_where_numbers_of_64_bits_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """The limit is lowered: nobody should have to write 2 GiB for it."""
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", limit)
    files = [tmp_path / f"file-{number}" for number in range(4)]
    for file in files:
        file.write_bytes(b"x" * 40)

    zipped = SizedZip(map(entry, files))
    assert sum(map(len, zipped.chunks())) == zipped.size_bytes


def test_a_file_that_grows_or_goes_meanwhile_is_sent_as_it_was(tmp_path: Path) -> None:
    growing, going = tmp_path / "growing", tmp_path / "going"
    for file in (growing, going):
        file.write_bytes(b"abc")
    zipped = SizedZip(map(entry, (growing, going)))
    growing.write_bytes(b"abcdef")
    going.unlink()

    sent = b"".join(zipped.chunks())
    assert len(sent) == zipped.size_bytes
    with zipfile.ZipFile(io.BytesIO(sent)) as archive:
        assert (archive.read("growing"), archive.read("going")) == (b"abc", b"abc")


def test_one_that_becomes_shorter_cuts_the_download(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"abc")
    zipped = SizedZip([entry(file)])
    os.truncate(file, 1)
    with pytest.raises(OSError, match="shorter"):
        b"".join(zipped.chunks())


def test_one_that_was_replaced_before_its_turn_cuts_the_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sized_zip, "_KEPT_OPEN", 0)
    file, other = tmp_path / "file", tmp_path / "other"
    file.write_bytes(b"abc")
    other.write_bytes(b"xyz")
    zipped = SizedZip([entry(file)])
    other.rename(file)
    with pytest.raises(OSError, match="replaced"):
        b"".join(zipped.chunks())


def test_descriptors_are_closed(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"abc")
    before = len(os.listdir("/proc/self/fd"))
    b"".join(SizedZip(entry(file, str(number)) for number in range(200)).chunks())
    SizedZip(entry(file, str(number)) for number in range(200)).close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_name_that_is_no_text_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"abc")
    zipped = SizedZip([entry(file, name=os.fsdecode(b"bad-\xff"))])
    sent = b"".join(zipped.chunks())
    assert len(sent) == zipped.size_bytes
    with zipfile.ZipFile(io.BytesIO(sent)) as archive:
        assert archive.namelist() == ["bad-?"]


@pytest.mark.parametrize(("seconds", "year"), [(0, 1980), (7_500_000_000, 2107)])
def test_a_time_that_no_zip_has_is_the_nearest(tmp_path: Path, seconds: int, year: int) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"abc")
    os.utime(file, (seconds, seconds))
    sent = b"".join(SizedZip([entry(file, "file")]).chunks())
    with zipfile.ZipFile(io.BytesIO(sent)) as archive:
        assert archive.infolist()[0].date_time[0] == year
