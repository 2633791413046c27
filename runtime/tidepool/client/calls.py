"""Serialization of a function call for the ranks, by cloudpickle, with your own code by value.

Functions and classes of `__main__` (the notebook) and of modules below the working folder are sent by value. All others
are imported by the ranks.
"""

import hashlib
import importlib.util
import inspect
import io
import linecache
import os
import platform
import re
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cloudpickle

from tidepool.client.errors import InvalidRequest
from tidepool.client.needed_modules import (
    called,
    modules_in_source,
    names_of,
    not_brought,
    source_of,
    there_for,
    top_level,
)
from tidepool.client.pack import Package
from tidepool.function_payload import CALL_FACTS, CALL_FILE, ENTRY_FILE, ENTRY_SOURCE, CallFacts, same_series
from tidepool.units import size_words

__all__ = ["MAX_CALL_BYTES", "Call", "as_package", "missing_words", "packed", "refuse_other_software"]

MAX_CALL_BYTES = 64 * 1024**2
_MAX_SOURCE_BYTES = 1024**2
_WORD = re.compile(r"[^\W\d]\w*")
_RUNTIME = Path(__file__).resolve().parents[2]
#: Names in messages for objects that cannot be sent.
_THINGS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (io.IOBase, "an open file"),
    (types.GeneratorType, "a generator"),
    (types.FrameType, "a frame"),
)
_BY_NAME = {"lock": "a lock", "RLock": "a lock", "socket": "an open connection", "Connection": "an open connection"}


@dataclass(frozen=True)
class Call:
    content: bytes
    facts: CallFacts
    #: Top-level modules that the ranks import for the call, none of Python's own.
    modules: frozenset[str] = frozenset()
    #: Modules below the working folder that a function imports within itself: they are not sent.
    own_modules: frozenset[str] = frozenset()


def packed(
    function: Callable[..., Any], arguments: Sequence[Any] = (), keywords: Mapping[str, Any] = {}, *, cell: str = ""
) -> Call:
    """Pickle the call. cell: source of the notebook's cell that the function runs.

    Raises TypeError that names the object that cannot be sent, InvalidRequest for more than 64 MiB.
    """
    name = getattr(function, "__name__", type(function).__name__)
    with _own_modules_by_value():
        try:
            content, pickler = _pickled((function, tuple(arguments), dict(keywords)))
        except Exception as error:  # an object's own pickling code may raise anything
            raise TypeError(_why_not(name, function, arguments, keywords, error)) from None
        if len(content) > MAX_CALL_BYTES:
            raise InvalidRequest(_too_large(name, len(content), function, arguments, keywords))
        by_value = {name.partition(".")[0] for name in cloudpickle.list_registry_pickle_by_value()}
    names = [name for value in (function, *arguments, *keywords.values()) for name in names_of(value)]
    sources = [cell, *map(source_of, called([*names, *_WORD.findall(cell)], pickler.functions))]
    imported = top_level(name for source in sources for name in modules_in_source(source))
    facts = CallFacts(
        name=name,
        python=".".join(platform.python_version_tuple()[:2]),
        cloudpickle=cloudpickle.__version__,
        sha256=hashlib.sha256(content).hexdigest(),
        sources=_sources(function),
    )
    modules = (top_level(pickler.modules) - by_value) | imported
    return Call(content, facts, frozenset(modules), frozenset(filter(_is_own, imported)))


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Refuses open files, which cloudpickle would send as a copy of their text, and notes what the ranks import."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.modules: set[str] = set()
        #: Functions that are sent by value.
        self.functions: list[types.FunctionType] = []

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, io.IOBase) and not isinstance(value, io.StringIO | io.BytesIO):
            raise TypeError("an open file cannot be sent")
        reduced = super().reducer_override(value)
        if isinstance(value, types.ModuleType):
            if sys.modules.get(value.__name__) is value:  # others are sent by value
                self.modules.add(value.__name__)
        elif reduced is NotImplemented and isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
            self.modules.add(value.__module__ or "")
        elif isinstance(value, types.FunctionType):
            self.functions.append(value)
        return reduced


def _dumps(value: Any) -> bytes:
    return _pickled(value)[0]


def _pickled(value: Any) -> tuple[bytes, "_Pickler"]:
    content = io.BytesIO()
    pickler = _Pickler(content)
    pickler.dump(value)
    return content.getvalue(), pickler


@contextmanager
def as_package(call: Call) -> Iterator[Package]:
    """Return the call as a folder with a script, in the site's format."""
    with TemporaryDirectory(prefix="tidepool-") as made:
        folder = Path(made, Path(ENTRY_FILE).stem)
        folder.mkdir()
        (folder / ENTRY_FILE).write_text(ENTRY_SOURCE)
        (folder / CALL_FACTS).write_text(call.facts.to_json())
        (folder / CALL_FILE).write_bytes(call.content)
        files = tuple(sorted(Path(name) for name in (ENTRY_FILE, CALL_FACTS, CALL_FILE)))
        total = sum((folder / file).stat().st_size for file in files)
        yield Package(folder, files, total, "the function", ENTRY_FILE, origin=Path.cwd())


def refuse_other_software(call: Call, software: Mapping[str, Any]) -> None:
    """Raise InvalidRequest if the cluster could not load the call. software: the response of `software/`."""
    there = ".".join(str(software["python"]).split(".")[:2])
    if there != call.facts.python:
        raise InvalidRequest(
            f"This notebook runs Python {call.facts.python}, the cluster {there}: send a script, or use a {there} "
            "kernel."
        )
    needed = software["packages"].get("cloudpickle")
    if needed is not None and not same_series(needed, call.facts.cloudpickle):
        raise InvalidRequest(
            f"This notebook has cloudpickle {call.facts.cloudpickle}, the cluster {needed}: "
            f"`pip install cloudpickle=={needed}`, or send a script."
        )


def missing_words(call: Call, software: Mapping[str, Any], requirements: str = "") -> list[str]:
    """Return sentences that name all modules that the ranks lack for the call.

    requirements: one per line. software: the response of `software/`.
    """
    there = there_for(call.modules, requirements, software)
    missing = set() if there is None else call.modules - there
    own = sorted(missing & call.own_modules)
    others = sorted(not_brought(missing - call.own_modules, requirements))
    found = []
    if others:
        who = "The cluster and the requirements lack" if requirements.strip() else "The cluster lacks"
        what = "their packages in requirements" if len(others) > 1 else "its package in requirements"
        them = "them" if len(others) > 1 else "it"
        found.append(
            f"{who} {', '.join(others)}, which {call.facts.name} imports. Name {what}, unless an administrator has "
            f"added {them} to the hosts."
        )
    if own:
        found.append(
            f"{call.facts.name} imports {', '.join(own)} within it, which is not sent: import your own modules outside "
            "of it, and they are sent with what uses them."
        )
    return found


# --- modules that travel by value -------------------------------------------------------------------------------------


@contextmanager
def _own_modules_by_value() -> Iterator[None]:
    registered = set(cloudpickle.list_registry_pickle_by_value())
    with ExitStack() as stack:
        for module in _own_modules():
            if module.__name__ not in registered:
                cloudpickle.register_pickle_by_value(module)
                stack.callback(cloudpickle.unregister_pickle_by_value, module)
        yield


def _own_modules() -> list[types.ModuleType]:
    """Return modules below the working folder that are neither installed there nor a part of Python or Tidepool."""
    is_below = _own_place()

    def is_own(name: str, module: object) -> bool:
        if name == "__main__" or not isinstance(module, types.ModuleType) or module.__name__ != name:
            return False
        return is_below(getattr(module, "__file__", None) or "")

    return [module for name, module in list(sys.modules.items()) if is_own(name, module)]


def _own_place() -> Callable[[str], bool]:
    """Return a function that tells whether a file is one's own: below the working folder, and not installed there."""
    here = f"{Path.cwd()}{os.sep}"
    foreign = [Path(each).resolve() for each in (sysconfig.get_path("stdlib"), sys.prefix, _RUNTIME)]

    def is_below(file: str) -> bool:
        # Names first: to resolve those of all modules takes longer than to pickle.
        path = Path(file).resolve() if os.path.abspath(file).startswith(here) else None
        return path is not None and not any(path.is_relative_to(each) for each in foreign)

    return is_below


def _is_own(name: str) -> bool:
    """Return whether a top-level module that may not be loaded yet is one's own."""
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # a module that was made without a file
        return False
    places = [spec.origin, *(spec.submodule_search_locations or ())] if spec else []
    return any(map(_own_place(), filter(None, places)))


def _sources(function: Callable[..., Any]) -> dict[str, str]:
    """Return the text of the function's file or cell, for tracebacks: the cluster has no file of that name."""
    name = getattr(getattr(inspect.unwrap(function), "__code__", None), "co_filename", "")
    lines = linecache.getlines(name) if name else []
    text = "".join(lines)
    return {name: text} if 0 < len(text) <= _MAX_SOURCE_BYTES else {}


# --- objects that cannot travel ---------------------------------------------------------------------------------------


def _why_not(name: str, function: Any, arguments: Sequence[Any], keywords: Mapping[str, Any], error: Exception) -> str:
    for word, value in _parts(function):
        if _problem(value) is not None:
            inner, culprit = _innermost(word, value)
            return f"Cannot send `{name}`: it refers to `{inner}`, {_thing(culprit)}. {_advice(culprit)}"
    for place, value in _given(arguments, keywords):
        if _problem(value) is not None:
            return f"Cannot send `{name}` with {place}, {_thing(value)}. {_advice(value)}"
    return f"Cannot send `{name}`: {error}. Define what it needs inside the function, or send a script."


def _innermost(word: str, value: Any, depth: int = 4) -> tuple[str, Any]:
    """Find the part of a function or container that prevents it from being sent."""
    if depth and not isinstance(value, io.IOBase):
        for inner, part in _parts(value):
            if _problem(part) is not None:
                return _innermost(inner, part, depth - 1)
    return word, value


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Return the parts that a function refers to, or an object consists of, by the author's names."""
    value = getattr(value, "__func__", value)
    if isinstance(value, types.FunctionType):
        found = inspect.getclosurevars(value)
        defaults = inspect.signature(value).parameters.values()
        yield from {**found.globals, **found.nonlocals}.items()
        yield from ((each.name, each.default) for each in defaults if each.default is not inspect.Parameter.empty)
    elif isinstance(value, Mapping):
        yield from ((str(key), part) for key, part in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"item {number}", part) for number, part in enumerate(value))
    elif not isinstance(value, types.ModuleType | type):
        yield from getattr(value, "__dict__", {}).items()


def _given(arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield from ((f"argument {number}", value) for number, value in enumerate(arguments, 1))
    yield from ((f"{name}=", value) for name, value in keywords.items())


def _problem(value: Any) -> Exception | None:
    try:
        _dumps(value)
    except Exception as error:
        return error
    return None


def _thing(value: Any) -> str:
    kind = type(value)
    named = next((words for kinds, words in _THINGS if isinstance(value, kinds)), None)
    return named or _BY_NAME.get(kind.__name__) or f"of the type {kind.__module__}.{kind.__qualname__}"


def _advice(value: Any) -> str:
    return "Open it inside the function." if isinstance(value, io.IOBase) else "Make it inside the function."


def _too_large(name: str, size: int, function: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> str:
    parts = [(f"`{word}`", value) for word, value in _parts(function)] + list(_given(arguments, keywords))
    sizes = [(len(_dumps(value)), place, value) for place, value in parts]
    most = max(sizes, key=lambda each: each[0], default=None)
    largest = f", most of it {most[1]} ({_kind(most[2])})" if most else ""
    return (
        f"`{name}` is {size_words(size)}{largest}, more than the limit of {size_words(MAX_CALL_BYTES)}. Register it "
        "as a dataset, or read it inside the function."
    )


def _kind(value: Any) -> str:
    name = type(value).__name__
    return "an array" if name == "ndarray" else f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
