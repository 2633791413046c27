"""The reader of CIFAR's pickles makes nothing but plain data, whatever a file asks for."""

import pickle
import pickletools
import subprocess

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets.inspection.pickles import NotPlain, RawArray, read_plain_pickle
from tests.datasets.cifar_files import batch


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_reads_what_newer_pythons_write(protocol: int) -> None:
    data = np.arange(6, dtype=np.uint8).reshape(2, 3)
    value = read_plain_pickle(pickle.dumps({b"labels": [1, 2], b"data": data, "name": "ü"}, protocol))

    assert (value[b"labels"], value["name"]) == ([1, 2], "ü")
    assert value[b"data"] == RawArray((2, 3), "u1", data.tobytes())


def test_reads_the_format_of_python_2_as_numpy_does() -> None:
    content = batch([3, 5])
    known = pickle.loads(content, encoding="bytes")
    value = read_plain_pickle(content)

    assert value[b"labels"] == known[b"labels"] == [3, 5]
    assert value[b"data"].data == known[b"data"].tobytes()
    assert value[b"filenames"] == known[b"filenames"]


class Evil:
    def __reduce__(self) -> tuple:
        return subprocess.check_output, (["touch", "/tmp/owned"],)


def _opcode(value: object, protocol: int = 2) -> bytes:
    return pickle.dumps(value, protocol)


@pytest.mark.parametrize(
    "content",
    [
        _opcode(Evil()),
        _opcode(Evil(), 4),
        _opcode([Evil()]),
        b"\x80\x02cos\nsystem\n(U\x02lstR.",
        b"\x80\x02cnumpy\nndarray\nK\x05\x85R.",
        b"\x80\x02cnumpy\ndtype\n)R.",
        b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x06\x00\x00\x00zlib__\x86R.",
        b"(i__builtin__\neval\n.",
        b"\x80\x02(c__builtin__\neval\no.",
        b"\x80\x02]K\x01s.",
        b"\x80\x02}(]K\x01u.",
        b"\x80\x02}(K\x01u.",
        b"\x80\x02h\x07.",
        b"\x80\x02t.",
        b"\x80\x02e.",
        b"\x80\x02(.",
        b"\x80\x02P1\n.",
        b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f.",
        b"\x80\x02T\xff\xff\xff\x7fabc.",
        b"",
        b".",
        b"\x80\x02]",
        _opcode(np.array([{}], dtype=object)),
        _opcode({1, 2}, 4),
        _opcode(1.5),
    ],
)
def test_refuses_everything_else(content: bytes) -> None:
    with pytest.raises(NotPlain):
        read_plain_pickle(content)


def test_no_name_of_a_pickle_is_ever_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def caught(*_: object) -> None:
        raise AssertionError("it was unpickled")

    monkeypatch.setattr(pickle, "Unpickler", caught)
    monkeypatch.setattr(pickle, "loads", caught)

    assert read_plain_pickle(batch([1]))[b"labels"] == [1]


@given(st.data())
def test_a_changed_byte_is_plain_or_refused(data: st.DataObject) -> None:
    content = bytearray(batch([1])[:200])
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] = data.draw(st.integers(0, 255))
    try:
        found = read_plain_pickle(bytes(content))  # a byte that says "stop" makes a shorter plain one
    except NotPlain:
        return
    assert _is_plain(found)


def _is_plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(_is_plain(each) for pair in value.items() for each in pair)
    if isinstance(value, list | tuple):
        return all(_is_plain(each) for each in value)
    return value is None or isinstance(value, bool | int | float | str | bytes | RawArray)


def test_every_opcode_of_a_batch_is_one_that_is_understood() -> None:
    names = {opcode.name for opcode, _, _ in pickletools.genops(batch(list(range(10)) * 30))}

    assert {"BINSTRING", "LONG_BINPUT", "BUILD", "REDUCE", "GLOBAL"} <= names
