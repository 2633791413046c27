"""Uploads: what is plain is unpacked as it is; what is not leaves nothing behind."""

import gzip
import io
import stat
import tarfile
import warnings
import zipfile

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.archive import Limits, store_uploads
from core.errors import UserError
from tests.core.archives import tar_of, tar_with, zip_of

LIMITS = Limits(max_bytes=50 * 1024**2, max_files=100)
FILES = {"main.py": b"print(1)\n", "package/module.py": b"x = 1\n", "data/weights.bin": bytes(200_000)}


@pytest.fixture
def area(tmp_path):
    (tmp_path / "inside").mkdir()
    (tmp_path / "sentinel").write_text("untouched")
    return tmp_path / "inside"


def _store(area, stream, name, limits=LIMITS):
    store_uploads([(stream, name)], area / "stored", limits, single=(".py",))


def _refused(area, stream, name, limits=LIMITS):
    """The sentence of the refusal, once it is sure that nothing was left."""
    with pytest.raises(UserError) as caught:
        _store(area, stream, name, limits)
    assert list(area.iterdir()) == []
    assert (area.parent / "sentinel").read_text() == "untouched"
    assert sorted(entry.name for entry in area.parent.iterdir()) == ["inside", "sentinel"]
    assert list(caught.value.fields) == ["file"]
    return caught.value.message


@pytest.mark.parametrize(
    ("stream", "name"),
    [
        (tar_of(FILES, mode="w"), "code.tar"),
        (tar_of(FILES), "code.tar.gz"),
        (tar_of(FILES), "CODE.TGZ"),
        (tar_of({f"./{name}": content for name, content in FILES.items()}), "code.tgz"),
        (zip_of(FILES), "code.zip"),
    ],
    ids=range(5),
)
def test_plain_archives_are_unpacked(area, stream, name):
    stream.seek(0)
    _store(area, stream, name)
    stored = {
        file.relative_to(area / "stored").as_posix(): file.read_bytes()
        for file in (area / "stored").rglob("*")
        if file.is_file()
    }
    assert stored == FILES
    assert [entry.name for entry in area.iterdir()] == ["stored"]


def test_a_single_script_is_taken_as_it_is(area):
    _store(area, io.BytesIO(b"print(1)"), "train.py")
    assert (area / "stored" / "train.py").read_bytes() == b"print(1)"


def test_modes_of_the_archive_do_not_count(area):
    _store(area, zip_of({"run.py": b""}, unix_mode=0o4777), "code.zip")
    assert stat.S_IMODE((area / "stored" / "run.py").stat().st_mode) == 0o644


@pytest.mark.parametrize(
    "name",
    [
        "../sentinel",
        "a/../../sentinel",
        "/tmp/sentinel",
        "..\\sentinel",
        "C:/sentinel",
        "a\nb",
        "d/" * 40 + "deep",
        "x" * 300,
    ],
)
@pytest.mark.parametrize("pack", [tar_of, zip_of])
def test_names_that_lead_elsewhere_are_refused(area, name, pack):
    suffix = "code.zip" if pack is zip_of else "code.tar.gz"
    assert "plain relative names" in _refused(area, pack({"good.py": b"", name: b"evil"}), suffix)


def _member(kind: bytes, name: str = "link", target: str = "../sentinel") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = target
    return info, b""


@pytest.mark.parametrize(
    "kind",
    [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.GNUTYPE_SPARSE],
)
def test_links_and_devices_are_refused(area, kind):
    payload = tarfile.TarInfo("link/payload")
    payload.size = 4
    message = _refused(area, tar_with([_member(kind), (payload, b"evil")], mode="w"), "code.tar")
    assert "link or a device" in message or "cannot be unpacked" in message


def test_a_link_in_a_zip_is_refused(area):
    assert "link or a device" in _refused(area, zip_of({"link": b"../sentinel"}, unix_mode=0o120777), "code.zip")


def test_a_name_twice_is_refused(area):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:
            archive.writestr("main.py", "1")
            archive.writestr("main.py", "2")
    assert "twice" in _refused(area, stream, "code.zip")
    info, again = tarfile.TarInfo("main.py"), tarfile.TarInfo("./main.py")
    assert "twice" in _refused(area, tar_with([(info, b""), (again, b"")]), "code.tar.gz")


def test_a_file_where_a_folder_is_named_is_refused(area):
    assert "twice" in _refused(area, tar_of({"a": b"file", "a/b": b"below it"}), "code.tar.gz")


@pytest.mark.parametrize("pack", [tar_of, zip_of])
def test_a_bomb_is_stopped_by_what_it_writes(area, pack):
    suffix = "code.zip" if pack is zip_of else "code.tar.gz"
    assert "suspiciously" in _refused(area, pack({"zeros": bytes(30 * 1024**2)}), suffix)


@pytest.mark.parametrize("pack", [tar_of, zip_of])
def test_too_many_bytes_or_entries_are_refused(area, pack):
    suffix = "code.zip" if pack is zip_of else "code.tar.gz"
    small = Limits(max_bytes=1000, max_files=5)
    assert "larger than 1000 B" in _refused(area, pack({"a": bytes(1001)}), suffix, small)
    assert "more than 5 entries" in _refused(area, pack({f"f{n}": b"" for n in range(6)}), suffix, small)


def test_a_long_header_is_not_read_into_memory(area):
    info = tarfile.TarInfo("main.py")
    info.pax_headers = {"comment": "x" * (4 * 1024**2)}
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info)
    stream.seek(0)
    assert "header that is too long" in _refused(area, stream, "code.tar.gz")


def test_an_encrypted_zip_is_refused(area):
    data = bytearray(zip_of({"main.py": b"1"}).getvalue())
    central = data.index(b"PK\x01\x02")
    data[central + 8] |= 1
    assert "encrypted" in _refused(area, io.BytesIO(bytes(data)), "code.zip")


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"not an archive", "code.zip"),
        (b"not an archive", "code.tar"),
        (b"\x1f\x8bnot gzip", "code.tar.gz"),
        (gzip.compress(b"x" * 2000), "code.tar.gz"),
        (tar_of(FILES).getvalue()[:-100], "code.tar.gz"),
        (zip_of(FILES).getvalue()[:-30], "code.zip"),
        (b"", "code.tar"),
        (zip_of({}).getvalue(), "code.zip"),
        (b"MZ", "tool.exe"),
        (b"", "noname"),
    ],
    # Explicit ids: an archive's bytes contain its creation time, and differ between processes.
    ids=range(10),
)
def test_what_is_no_archive_is_refused(area, content, name):
    assert _refused(area, io.BytesIO(content), name).endswith((".", ":"))


@settings(deadline=None)
@given(st.binary(max_size=2000), st.sampled_from(["a.zip", "a.tar", "a.tar.gz"]))
def test_arbitrary_bytes_are_stored_or_refused(tmp_path_factory, data, name):
    area = tmp_path_factory.mktemp("fuzz")
    try:
        store_uploads([(io.BytesIO(data), name)], area / "stored", LIMITS, single=())
    except UserError:
        assert list(area.iterdir()) == []


@settings(deadline=None)
@given(
    st.integers(0, 2000),
    st.integers(0, 255),
    st.sampled_from([("a.zip", zip_of), ("a.tar", lambda f: tar_of(f, mode="w"))]),
)
@example(215, 1, ("a.zip", zip_of))  # a directory that points before the archive's start
@example(137, 0, ("a.zip", zip_of))  # an entry without a name
def test_a_damaged_archive_is_stored_or_refused(tmp_path_factory, position, value, kind):
    name, pack = kind
    data = bytearray(pack({"main.py": b"x = 1\n" * 50, "lib/a.py": b"y\n"}).getvalue())
    data[position % len(data)] = value
    area = tmp_path_factory.mktemp("damaged")
    try:
        store_uploads([(io.BytesIO(bytes(data)), name)], area / "stored", LIMITS, single=())
    except UserError:
        assert list(area.iterdir()) == []
