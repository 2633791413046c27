"""The numbers by which a script counts its batches: they follow the batches of the training.

A process that joins in the middle of a pass would count from 0, one that resumes the training has lost its counters,
and a batch that is repeated after a death would count twice. A rate, or an `if place % 3 == 0`, would then differ from
rank to rank, or from what one process computes. So two kinds of numbers are set to what they are on the other ranks,
or were before the batch: that of `enumerate`, and variables and attributes that the body of the loop changes by
constants: `step += 1`, `temperature = max(0.5, temperature * decay)`. What a process's share has a part in, such as
`total += len(labels)`, is that process's own.
"""

import ast
import ctypes
import gc
import inspect
import linecache
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType, FrameType, GeneratorType
from typing import Any

__all__ = ["OwnCounts", "assign", "consumer", "loop_at", "simple"]

_OURS = ("tidepool", "adaptdl")
#: Key of the number of batches that the script has got in the pass.
_GIVEN = ""
#: On Python 3.11, threads that parse at once may fail: github.com/python/cpython/issues/106905.
_parsing = threading.Lock()
_Loop = ast.For | ast.While
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class OwnCounts:
    """Counts of the script in one pass over the data. Only code that runs as the script asks for a batch calls it."""

    def __init__(self) -> None:
        #: Batches that the script has got in the pass, as it counts them.
        self.given = 0
        self._frame: FrameType | None = None
        self._counters = _Counters()
        #: Whether there is an `enumerate` around the loader; None: not looked for yet.
        self._is_enumerated: bool | None = None

    def now(self) -> dict[str, float]:
        """Return the present values, by the text of the variable or attribute."""
        if self._frame is None:
            self._frame = consumer(sys._getframe(1))
            if self._frame is not None:
                self._counters = _counters(self._frame.f_code, self._frame.f_lineno)
        values: dict[str, float] = {_GIVEN: self.given}
        if self._frame is not None and self._counters.readers:
            names = self._frame.f_locals
            for text, code in self._counters.readers.items():
                try:
                    value = eval(code, self._frame.f_globals, names)  # noqa: S307
                except (NameError, AttributeError, LookupError):  # not made yet
                    continue
                if type(value) in (int, float):
                    values[text] = value
        return values

    def put_back(self, values: Mapping[str, float]) -> None:
        """Set the script's numbers to these values of an earlier moment, or of another rank."""
        if not values:
            return
        present, frame = self.now(), self._frame
        for text in values.keys() & present.keys() - {_GIVEN}:
            if frame is not None and values[text] != present[text]:
                assign(frame, text, values[text])
        if shift := int(values.get(_GIVEN, 0)) - self.given:
            if self._is_enumerated is not False:
                # They are looked for each time: one that we kept would keep the loader's iterator after a `break`.
                self._is_enumerated = False
                for each in _enumerations(sys._getframe(1)):
                    _renumber(each, shift)
                    self._is_enumerated = True
            if self._is_enumerated or self._counters.readers:
                self.given += shift

    def beyond_pass(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return those of the values with which the script begins the next pass."""
        ends = {_GIVEN, *self._counters.begin_anew}
        return {text: value for text, value in values.items() if text not in ends}

    def close(self) -> None:
        """Forget the script's frame, which holds all of its variables."""
        self._frame = None


def consumer(frame: FrameType | None) -> FrameType | None:
    """Return the frame of the script that asks for a batch: not ours, and no generator of a library (progress bars).

    frame: that from which to go up.
    """
    while frame is not None and (_is_ours(frame) or _is_library_generator(frame)):
        frame = frame.f_back
    return frame


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] in _OURS


def _is_library_generator(frame: FrameType) -> bool:
    return bool(frame.f_code.co_flags & inspect.CO_GENERATOR) and "site-packages" in frame.f_code.co_filename


# --- counters --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Counters:
    #: Text of a counter -> code that reads it.
    readers: dict[str, CodeType] = field(default_factory=dict)
    #: Counters that begin anew in each pass.
    begin_anew: frozenset[str] = frozenset()


@lru_cache(maxsize=64)
def _counters(code: CodeType, line: int) -> _Counters:
    """Return what the loop on this line counts in. Nothing without the source."""
    scope, loop = _loop_in_scope(code, line)
    if loop is None:
        return _Counters()
    texts = set(_counted(loop.body, _Constants.of(loop)))
    made = {ast.unparse(target) for node in _outside(scope, loop) for target in _targets(node)}
    return _Counters({text: compile(text, "<counter>", "eval") for text in sorted(texts)}, frozenset(texts & made))


def loop_at(code: CodeType, line: int) -> _Loop | None:
    """Return the innermost loop on this line; None outside of loops, and without the source."""
    return _loop_in_scope(code, line)[1]


def _loop_in_scope(code: CodeType, line: int) -> tuple[ast.AST, _Loop | None]:
    """Return the innermost loop on this line, and what it is in: another loop, a function, or the module."""
    try:
        with _parsing:
            module = ast.parse("".join(linecache.getlines(code.co_filename)))
    except SyntaxError:
        return ast.Module([], []), None
    around = [node for node in ast.walk(module) if isinstance(node, _Loop | _Function) and _has_line(node, line)]
    around.sort(key=lambda node: node.lineno)
    loop = around.pop() if around else None
    if not isinstance(loop, _Loop):
        return module, None
    return around[-1] if around else module, loop


def _has_line(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _outside(scope: ast.AST, loop: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of `scope` that are not in the loop."""
    for node in ast.iter_child_nodes(scope):
        if node is not loop:
            yield node
            yield from _outside(node, loop)


def _targets(node: ast.AST) -> list[ast.expr]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [one for target in targets for one in (target.elts if isinstance(target, ast.Tuple) else [target])]


def _counted(body: list[ast.stmt], constants: "_Constants") -> Iterator[str]:
    """Yield the texts of what these statements change by constants."""
    for statement in body:
        match statement:
            case ast.AugAssign(target=target, value=value) if constants.make(value):
                yield from simple(target)
            case ast.Assign(targets=[target], value=value) if constants.make(value, of=ast.unparse(target)):
                yield from simple(target)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.For() | ast.While():
                continue  # a loop within the body counts the samples of this process's share, or the like
        for name in ("body", "orelse", "finalbody"):
            yield from _counted(getattr(statement, name, []), constants)
        for handler in getattr(statement, "handlers", []):
            yield from _counted(handler.body, constants)


@dataclass(frozen=True)
class _Constants:
    """Numbers that do not change while a loop runs, as far as its code shows. All fields are texts."""

    assigned: frozenset[str]
    #: Objects of which the loop calls a method, which may change their attributes: `meter.update(loss)`.
    called: frozenset[str]

    @classmethod
    def of(cls, loop: _Loop) -> "_Constants":
        stored = [node for node in ast.walk(loop) if isinstance(getattr(node, "ctx", None), ast.Store)]
        calls = [node.func for node in ast.walk(loop) if isinstance(node, ast.Call)]
        called = {ast.unparse(each.value) for each in calls if isinstance(each, ast.Attribute)}
        return cls(frozenset(map(ast.unparse, stored)), frozenset(called - {"self"}))

    def make(self, value: ast.expr, of: str = "") -> bool:
        """Return whether the value is computed from constants, and from the variable `of`, if one is named."""
        leaves = [*_leaves(value)]
        texts = [ast.unparse(each) for each in leaves if not isinstance(each, ast.Constant)]
        are_numbers = all(type(each.value) in (int, float) for each in leaves if isinstance(each, ast.Constant))
        others = [text for text in texts if text != of]
        return are_numbers and (not of or of in texts) and all(map(self._is_constant, others))

    def _is_constant(self, text: str) -> bool:
        base, dot, attribute = text.partition(".")
        is_name = base.isidentifier() and (not dot or attribute.isidentifier())
        return is_name and self.assigned.isdisjoint({text, base}) and not (dot and base in self.called)


def _leaves(value: ast.expr) -> Iterator[ast.expr]:
    """Yield the names and constants that the value is computed from; a part that is no arithmetic as a whole."""
    match value:
        case ast.BinOp(left=left, right=right):
            yield from (*_leaves(left), *_leaves(right))
        case ast.UnaryOp(operand=operand):
            yield from _leaves(operand)
        case ast.Call(func=ast.Name(id="abs" | "float" | "int" | "max" | "min" | "round"), args=given, keywords=[]):
            for each in given:
                yield from _leaves(each)
        case _:
            yield value


def simple(target: ast.expr) -> Iterator[str]:
    """Yield the text of a variable, or of an attribute or item of one: to read it has no effects."""
    inner: ast.expr = target
    while isinstance(inner, ast.Attribute) or (
        isinstance(inner, ast.Subscript) and isinstance(inner.slice, ast.Constant)
    ):
        inner = inner.value
    if isinstance(inner, ast.Name):
        yield ast.unparse(target)


def assign(frame: FrameType, text: str, value: Any) -> None:
    """Assign to a variable of the frame's function or module, or to an attribute or item of one."""
    names = frame.f_locals
    if not text.isidentifier():
        exec(f"{text} = _value_", frame.f_globals, {**names, "_value_": value})  # noqa: S102
    elif text in names:
        names[text] = value
        # Until Python 3.13, `f_locals` of a function is a copy.
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
    else:
        frame.f_globals[text] = value


# --- enumerate -------------------------------------------------------------------------------------------------------


def _enumerations(frame: FrameType | None) -> Iterator[Any]:
    """Yield the `enumerate` objects over the generators that run between the script and us, ours among them."""
    chain = []
    while frame is not None and (_is_ours(frame) or _is_library_generator(frame)):
        chain.append(frame)
        frame = frame.f_back
    # A generator refers to its frame. A list of all objects would disturb other threads, see tidepool.live_objects.
    generators = [each for each in gc.get_referrers(*chain) if isinstance(each, GeneratorType)]
    for each in gc.get_referrers(*generators):
        if type(each) is enumerate and any(_inner(each)[0] is one for one in generators):
            yield each


def _inner(enumeration: Any) -> tuple[Any, int]:
    """Return what it iterates over, and its next number, as for a copy of it."""
    iterator, number = enumeration.__reduce__()[1]
    return iterator, number


def _renumber(enumeration: Any, shift: int) -> None:
    """Change the next number. Python has no way to say so; in CPython it lies behind the head of the object."""
    number = ctypes.c_ssize_t.from_address(id(enumeration) + object.__basicsize__)
    if number.value != _inner(enumeration)[1]:
        raise RuntimeError(f"this Python keeps the number of an enumerate elsewhere: {sys.version}")
    number.value += shift
