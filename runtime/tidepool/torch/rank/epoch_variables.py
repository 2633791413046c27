"""Variables that a script keeps from one epoch to the next: they belong to the training.

A process that resumes a training runs the script from the top, and one that joins has not seen the earlier epochs.
The best loss so far, or how often it has not fallen, would begin anew there, and early stopping would come late. So the
numbers and texts that the body of the loop over `epochs()` assigns, and copies of a model's weights, are saved as they
were when the epoch began, and are set to these values where a process begins the same epoch. What never changes is each
process's own: the name of a file, or whether it is the first one.
"""

import ast
import inspect
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from tidepool.torch.rank.own_counts import assign, consumer, loop_at, simple

__all__ = ["EpochVariables"]

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda
#: Objects with a state of another kind.
_OTHERS = (torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.Tensor)
_DATA = (DataLoader, Dataset, Sampler)


class EpochVariables:
    """Numbers and texts of the script when the epoch under way began. A part of the training's state."""

    def __init__(self, models: Iterable[torch.nn.Module] = ()) -> None:
        #: Names in the weights of each model: a dict of tensors with these names is a copy of them.
        self._weights = [frozenset(model.state_dict()) for model in models]
        self._epoch = -1
        #: Text of a variable or an attribute -> its value, packed. Those that have changed since the first epoch.
        self._values: dict[str, list[Any]] = {}
        #: All of them as this process began its first epoch.
        self._first: dict[str, list[Any]] | None = None
        #: State that this process has received, until it begins an epoch.
        self._received: dict[str, Any] | None = None

    def begin(self, epoch: int) -> None:
        """The script begins this epoch: take over what was received of it, and note the present values."""
        frame = consumer(sys._getframe(1))
        received, self._received = self._received, None
        self._epoch = epoch
        if frame is None:
            return
        if self._first is None:
            self._first = self._packed_values(frame)
        if received is not None and received["epoch"] == epoch:
            self._put_back(frame, received["values"])
        self._note(frame)

    def end(self, epoch: int) -> None:
        """The script has ended this epoch, and a checkpoint may be written before it begins the next one."""
        frame = consumer(sys._getframe(1))
        self._epoch = epoch + 1
        if frame is not None and self._first is not None:
            self._note(frame)

    def _note(self, frame: FrameType) -> None:
        """Note the present values of what has changed since the first epoch."""
        assert self._first is not None
        for text, value in self._packed_values(frame).items():
            if text in self._values or not _are_same(value, self._first.get(text, value)):
                self._values[text] = value
        _forget_copies(frame)

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self._epoch, "values": {**self._values}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._received = state
        self._epoch, self._values = state["epoch"], {**state["values"]}

    def _put_back(self, frame: FrameType, values: Mapping[str, list[Any]]) -> None:
        for text, value in list(_present(frame)):
            if text in values and not _are_same(self._packed(value), values[text]):
                assign(frame, text, _unpacked(values[text]))

    def _packed_values(self, frame: FrameType) -> dict[str, list[Any]]:
        return {text: packed for text, value in _present(frame) if (packed := self._packed(value)) is not None}

    def _packed(self, value: Any) -> list[Any] | None:
        """Return the value for the state; None: it is not carried."""
        is_weights = isinstance(value, dict) and value.keys() in self._weights
        if is_weights and all(isinstance(tensor, torch.Tensor) for tensor in value.values()):
            return ["weights", dict(value)]
        return _packed(value)


def _are_same(one: list[Any] | None, other: list[Any]) -> bool:
    """Return whether packed values are equal. A copy of weights equals itself alone."""
    if one is None or "weights" not in (one[0], other[0]):
        return one == other
    return one[0] == other[0] and all(one[1][name] is tensor for name, tensor in other[1].items())


def _present(frame: FrameType) -> Iterator[tuple[str, Any]]:
    """Yield what the loop assigns, and the attributes of the script's own objects that it uses."""
    names = frame.f_locals
    for text, code in _assigned(frame.f_code, frame.f_lineno).items():
        try:
            value = eval(code, frame.f_globals, names)  # noqa: S307
        except Exception:  # noqa: S112  # not made yet; and a property of the script's may raise anything
            continue
        yield text, value
    for name in sorted(_names(frame.f_code, frame.f_lineno).used):
        item = names.get(name, frame.f_globals.get(name))
        if _is_the_scripts_own(item):
            for attribute, value in list(vars(item).items()):
                if attribute.isidentifier():
                    yield f"{name}.{attribute}", value


@lru_cache(maxsize=64)
def _assigned(code: CodeType, line: int) -> dict[str, CodeType]:
    """Return code that reads each variable, attribute or item that the loop on this line assigns."""
    loop = loop_at(code, line)
    targets = [] if loop is None else [target for node in _inside(loop.body) for target in _targets_of(node)]
    texts = {text for target in targets for text in simple(target)}
    return {text: compile(text, "<variable>", "eval") for text in sorted(texts)}


class _Names(NamedTuple):
    assigned: frozenset[str]
    #: Names that the loop reads and does not assign.
    used: frozenset[str]


@lru_cache(maxsize=64)
def _names(code: CodeType, line: int) -> _Names:
    """Return the names in the body of the loop on this line."""
    loop = loop_at(code, line)
    names = [] if loop is None else [node for node in _inside(loop.body) if isinstance(node, ast.Name)]
    assigned = frozenset(name.id for name in names if isinstance(name.ctx, ast.Store))
    return _Names(assigned, frozenset(name.id for name in names) - assigned)


def _forget_copies(frame: FrameType) -> None:
    """Drop what `f_locals` has copied, until Python 3.13: a copy would keep the newest batch in memory for an epoch."""
    copies = frame.f_locals
    if sys.version_info >= (3, 13) or not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return  # the variables themselves
    for name in _names(frame.f_code, frame.f_lineno).assigned & copies.keys():
        if _packed(copies[name]) is None:
            del copies[name]


def _inside(nodes: list[Any]) -> Iterator[ast.AST]:
    """Yield what runs as a part of these statements: no bodies of functions and classes."""
    for node in nodes:
        yield node
        if not isinstance(node, _Function):
            yield from _inside(list(ast.iter_child_nodes(node)))


def _targets_of(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.Assign(targets=targets):
            return [one for target in targets for one in (target.elts if isinstance(target, ast.Tuple) else [target])]
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target) | ast.NamedExpr(target=target):
            return [target]
    return []


def _is_the_scripts_own(item: Any) -> bool:
    """Return whether the object's class is the script's, and no part of the training that has a state of its own."""
    kind = type(item)  # an object's own __getattr__ may do anything
    if isinstance(item, (type, *_OTHERS, *_DATA)) or not kind.__dictoffset__ or hasattr(kind, "state_dict"):
        return False
    module = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None) or ""
    is_ours = kind.__module__.partition(".")[0] in ("tidepool", "adaptdl")
    return bool(file) and not is_ours and not file.startswith(_libraries())


@cache
def _libraries() -> tuple[str, ...]:
    return tuple(map(sysconfig.get_path, ("stdlib", "purelib", "platlib")))


# --- values as text: JSON knows no infinity ---


def _packed(value: Any) -> list[str] | None:
    match value:
        case None:
            return ["none", ""]
        case bool():
            return ["bool", str(int(value))]
        case int():
            return ["int", str(int(value))]
        case float():
            return ["float", float(value).hex()]
        case str() if len(value) <= 1000:
            return ["str", value]
    return None


def _unpacked(packed: list[Any]) -> Any:
    kind, text = packed
    if kind == "none":
        return None
    if kind == "weights":
        return text
    of_kind: dict[str, Any] = {
        "bool": lambda: text == "1",
        "int": lambda: int(text),
        "float": lambda: float.fromhex(text),
    }
    return of_kind[kind]() if kind in of_kind else text
