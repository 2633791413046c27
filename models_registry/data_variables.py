"""Detection of scripts that need a dataset, by their use of DATA_DIR."""

import ast
from collections.abc import Iterable, Iterator

__all__ = ["needs_data"]

_DATA_WORDS = frozenset({"DATA_DIR", "DLI_DATA_FS"})
_READERS = frozenset({"get", "getenv", "pop", "setdefault"})
_MISSING = frozenset({"KeyError", "LookupError", "Exception"})


def needs_data(trees: Iterable[ast.AST]) -> bool:
    """Return whether a script with these sources names DATA_DIR, and none of its uses shows that it works without."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    if any(isinstance(node, ast.Compare) and _is_question(node) for node in nodes):
        return False
    optional = {id(word) for node in nodes for word in _optional(node)}
    return any(_is_data_word(node) and id(node) not in optional for node in nodes)


def _is_data_word(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value in _DATA_WORDS


def _is_question(node: ast.Compare) -> bool:
    """Return whether the expression is `"DATA_DIR" in os.environ`."""
    return _is_data_word(node.left) and isinstance(node.ops[0], ast.In | ast.NotIn)


def _optional(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the names of variables for which the node has another value."""
    if isinstance(node, ast.Call) and _has_default(node):
        yield node.args[0]
    elif isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
        for value in node.values[:-1]:
            yield from filter(_is_data_word, ast.walk(value))
    elif isinstance(node, ast.Try) and any(_catches_missing(handler) for handler in node.handlers):
        for statement in node.body:
            yield from filter(_is_data_word, ast.walk(statement))


def _has_default(call: ast.Call) -> bool:
    """Return whether the call is one such as `os.environ.get("DATA_DIR", "./data")`."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name not in _READERS or not call.args:
        return False
    defaults = [*call.args[1:], *(keyword.value for keyword in call.keywords if keyword.arg == "default")]
    return any(not (isinstance(each, ast.Constant) and each.value is None) for each in defaults)


def _catches_missing(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or (isinstance(kind, ast.Name) and kind.id in _MISSING) for kind in kinds)
