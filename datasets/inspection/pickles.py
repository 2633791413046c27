"""Reader of the pickles of CIFAR's python batches that does not unpickle.

Unpickling executes code that the file names. This reader creates no object that a pickle names: `pickletools`, which
executes nothing, parses the opcodes, and they are replayed on a stack of plain numbers, texts, lists and dicts. The
three names that NumPy's arrays need, and the one with which newer Pythons write bytes, are recognised as markers. All
other opcodes and names are refused.
"""

import pickletools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

__all__ = ["NotPlain", "RawArray", "read_plain_pickle"]

_NDARRAY = ("numpy", "ndarray")
_DTYPE = ("numpy", "dtype")
_ENCODE = ("_codecs", "encode")
_RECONSTRUCT = (("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct"))
_NAMES = frozenset({_NDARRAY, _DTYPE, _ENCODE, *_RECONSTRUCT})

_PUSH = frozenset(
    {"BININT", "BININT1", "BININT2", "INT", "LONG1", "BINUNICODE", "SHORT_BINUNICODE", "UNICODE"}
    | {"BINBYTES", "SHORT_BINBYTES"}
)
#: Opcodes of Python 2's str, which is text or bytes; `pickletools` returns it as Latin-1.
_PUSH_BYTES = frozenset({"BINSTRING", "SHORT_BINSTRING", "STRING"})
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_NOTHING = frozenset({"PROTO", "FRAME"})
_MAX_OPCODES = 2_000_000


class NotPlain(ValueError):
    """The pickle is damaged, or holds more than numbers, texts and arrays of numbers."""


@dataclass
class RawArray:
    """A NumPy array as its pickle describes it, unchecked."""

    shape: tuple[int, ...] = ()
    #: Type in NumPy's notation, such as "u1".
    dtype: str = ""
    data: bytes = b""


@dataclass
class _Type:
    code: str


@dataclass
class _Machine:
    stack: list[Any] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)
    marks: list[int] = field(default_factory=list)

    def pop(self, count: int) -> list[Any]:
        if count == 0:
            return []
        if len(self.stack) - (self.marks[-1] if self.marks else 0) < count:
            _refuse("it is damaged")
        taken = self.stack[-count:]
        del self.stack[-count:]
        return taken

    def pop_to_mark(self) -> list[Any]:
        if not self.marks:
            _refuse("it is damaged")
        start = self.marks.pop()
        taken = self.stack[start:]
        del self.stack[start:]
        return taken

    def top(self, kind: type) -> Any:
        if not self.stack or type(self.stack[-1]) is not kind:
            _refuse("it is damaged")
        return self.stack[-1]


def read_plain_pickle(content: bytes) -> Any:
    """Return the value, made of dicts, lists, tuples, numbers, str, bytes and `RawArray`. Raises NotPlain."""
    machine = _Machine()
    for number, (name, argument) in enumerate(_opcodes(content)):
        if number > _MAX_OPCODES:
            _refuse("it has too many parts")
        if name == "STOP":
            [value] = machine.pop(1)
            return value
        _play(machine, name, argument)
    return _refuse("it is cut off")


def _opcodes(content: bytes) -> Iterator[tuple[str, Any]]:
    try:
        for opcode, argument, _ in pickletools.genops(content):
            yield opcode.name, argument
    except NotPlain:
        raise
    except (ValueError, IndexError, UnicodeError, OverflowError) as error:
        raise NotPlain("it is damaged or cut off") from error


def _play(machine: _Machine, name: str, argument: Any) -> None:
    stack = machine.stack
    if name in _PUSH:
        stack.append(argument)
    elif name in _PUSH_BYTES:
        stack.append(argument.encode("latin-1"))
    elif name in _CONSTANTS:
        stack.append(_CONSTANTS[name])
    elif name in _TUPLES:
        stack.append(tuple(machine.pop(_TUPLES[name])))
    elif name in _ACTIONS:
        _ACTIONS[name](machine, argument)
    elif name not in _NOTHING:
        _refuse(f"it uses {name}, which data do not need")


def _set_items(machine: _Machine, pairs: list[Any]) -> None:
    target = machine.top(dict)
    if len(pairs) % 2 or not all(type(key) in (str, bytes, int) for key in pairs[::2]):
        _refuse("it has a dictionary with odd keys")
    target.update(zip(pairs[::2], pairs[1::2], strict=True))


def _append(machine: _Machine, values: list[Any]) -> None:
    machine.top(list).extend(values)


def _remember(machine: _Machine, number: int | None) -> None:
    if not machine.stack:
        _refuse("it is damaged")
    machine.memo[len(machine.memo) if number is None else number] = machine.stack[-1]


def _recall(machine: _Machine, number: int) -> None:
    if number not in machine.memo:
        _refuse("it is damaged")
    machine.stack.append(machine.memo[number])


def _name(machine: _Machine, module: Any, name: Any) -> None:
    if (module, name) not in _NAMES:
        _refuse(f"it names {str(module)[:60]}.{str(name)[:60]}, which is never run")
    machine.stack.append((module, name))


def _call(machine: _Machine, _: Any) -> None:
    callee, arguments = machine.pop(2)
    match callee, arguments:
        case (module, "_reconstruct"), (_, _, _) if (module, "_reconstruct") in _RECONSTRUCT:
            machine.stack.append(RawArray())
        case ("numpy", "dtype"), (str() | bytes() as code, *_):
            machine.stack.append(_Type(code if isinstance(code, str) else code.decode("latin-1")))
        case ("_codecs", "encode"), (str() as text, "latin1"):
            machine.stack.append(_latin(text))
        case _:
            _refuse("it builds something that is not an array of numbers")


def _build(machine: _Machine, _: Any) -> None:
    """Set shape, type and content of the array. Further state of a type is ignored."""
    [state] = machine.pop(1)
    if machine.stack and isinstance(machine.stack[-1], _Type):
        return
    array = machine.top(RawArray)
    match state:
        case (_, tuple() as shape, _Type() as dtype, bool() | int(), bytes() as data):
            if not all(type(size) is int and size >= 0 for size in shape):
                _refuse("it has an array of an odd shape")
            array.shape, array.dtype, array.data = shape, dtype.code, data
        case _:
            _refuse("it has an array that holds no numbers")


def _latin(text: str) -> bytes:
    try:
        return text.encode("latin-1")
    except UnicodeError as error:
        raise NotPlain("it is damaged") from error


def _global(machine: _Machine, argument: str) -> None:
    module, _, name = argument.partition(" ")
    _name(machine, module, name)


_ACTIONS: dict[str, Callable[[_Machine, Any], None]] = {
    "MARK": lambda machine, _: machine.marks.append(len(machine.stack)),
    "EMPTY_DICT": lambda machine, _: machine.stack.append({}),
    "EMPTY_LIST": lambda machine, _: machine.stack.append([]),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.pop_to_mark())),
    "LIST": lambda machine, _: machine.stack.append(machine.pop_to_mark()),
    "APPEND": lambda machine, _: _append(machine, machine.pop(1)),
    "APPENDS": lambda machine, _: _append(machine, machine.pop_to_mark()),
    "SETITEM": lambda machine, _: _set_items(machine, machine.pop(2)),
    "SETITEMS": lambda machine, _: _set_items(machine, machine.pop_to_mark()),
    "BINPUT": _remember,
    "LONG_BINPUT": _remember,
    "PUT": _remember,
    "MEMOIZE": _remember,
    "BINGET": _recall,
    "LONG_BINGET": _recall,
    "GET": _recall,
    "GLOBAL": _global,
    "STACK_GLOBAL": lambda machine, _: _name(machine, *machine.pop(2)),
    "REDUCE": _call,
    "BUILD": _build,
}


def _refuse(why: str) -> NoReturn:
    raise NotPlain(why)
