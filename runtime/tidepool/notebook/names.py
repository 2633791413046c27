"""Names of the notebook that a cell needs, and names that it returns."""

import ast
import importlib
import pickle
import symtable
import types
from collections.abc import Callable, Collection, Iterator, MutableMapping
from typing import Any

from tidepool.function_payload import CALLER
from tidepool.notebook_cells import TITLE, Outcome

__all__ = ["as_function", "names_needed", "take_over"]


def names_needed(source: str, known: Collection[str]) -> list[str]:
    """Return those of `known` that the cell reads before it assigns them itself. Raises SyntaxError."""
    compile(source, TITLE, "exec")
    needed: set[str] = set()
    assigned: set[str] = set()
    for statement in ast.parse(source).body:
        needed |= _read_by(statement) - assigned
        assigned |= _surely_assigned_by(statement)
    return sorted(needed & set(known))


def as_function(namespace: dict[str, Any]) -> Callable[..., Outcome]:
    """Wrap a cell as a function of the notebook for a rank: its other functions see what the cell assigns."""
    return types.FunctionType(_cell.__code__.replace(co_filename=CALLER), namespace, "cell")


def take_over(outcome: Outcome, namespace: MutableMapping[str, Any]) -> dict[str, str]:
    """Assign what came back; the names that did not, with the reason."""
    missing = dict(outcome.left)
    for name, content in outcome.values.items():
        try:
            namespace[name] = pickle.loads(content)  # noqa: S301 - the user's own
        except Exception as error:  # a class may raise anything when it is loaded
            missing[name] = str(error) or type(error).__name__
    for name, module in outcome.modules.items():
        try:
            namespace[name] = importlib.import_module(module)
        except ImportError as error:
            missing[name] = str(error)
    return missing


def _cell(source: str, wanted: list[str] | None, /, **names: Any) -> Outcome:
    from tidepool.notebook_cells import run

    return run(globals(), source, wanted, names)


def _read_by(statement: ast.stmt) -> set[str]:
    """Names of the notebook that the statement, or a function within it, refers to."""
    top = symtable.symtable(ast.unparse(statement), TITLE, "exec")
    read = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_referenced()}
    for table in _within(top):
        read |= {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global()}
    changed = [node.target for node in ast.walk(statement) if isinstance(node, ast.AugAssign)]
    deleted = [target for node in ast.walk(statement) if isinstance(node, ast.Delete) for target in node.targets]
    return read | {node.id for node in [*changed, *deleted] if isinstance(node, ast.Name)}


def _within(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    for child in table.get_children():
        yield child
        yield from _within(child)


def _surely_assigned_by(statement: ast.stmt) -> set[str]:
    """Return the names that are surely assigned, not those of `if`, loops and `try`: they may not be."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name.partition(".")[0] for alias in statement.names}
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        targets = [statement.target]
    found = [node for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]
    return {node.id for node in found if isinstance(node.ctx, ast.Store)}
