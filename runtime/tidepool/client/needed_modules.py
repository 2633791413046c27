"""Modules that the ranks import for a function or cell, as its source tells, and which of them they lack.

Only imports that are surely carried out count, not those in `if` and `try`.
"""

import ast
import functools
import inspect
import re
import sys
import textwrap
import tokenize
import types
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from typing import Any, Final

from tidepool.requirement_files import all_lines

__all__ = ["called", "modules_in_source", "names_of", "not_brought", "source_of", "there_for", "top_level"]

#: Modules that every rank has, or gets where the function names them.
_ALWAYS: Final = frozenset({*sys.stdlib_module_names, "__main__", "tidepool", "cloudpickle", "pyspark", "__builtin__"})
#: Modules of MLflow that need pandas, which MLflow's light client leaves out -> the framework that each needs besides.
_PARTS_OF_MLFLOW: Final[Mapping[str, str | None]] = {
    **{name: name for name in ("catboost", "lightgbm", "onnx", "prophet", "sklearn", "spacy", "statsmodels")},
    **{name: name for name in ("tensorflow", "transformers", "xgboost")},
    "pytorch": "torch",
    "models": None,
    "pyfunc": None,
}
#: Statements whose body is surely carried out, where functions and classes are taken for used.
_RUN: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.For, ast.With)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


# --- imports in a source ----------------------------------------------------------------------------------------------


def modules_in_source(source: str) -> set[str]:
    """Return the names, with all dots, that the source of a function or a cell imports, or uses of MLflow."""
    try:
        tree = ast.parse(textwrap.dedent(source))
    except SyntaxError:  # the line of a lambda
        return set()
    used = {
        f"mlflow.{node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "mlflow"
    }
    return {*_imported(tree.body), *used}


def _imported(body: list[ast.stmt]) -> Iterator[str]:
    for statement in body:
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            yield from (f"{statement.module}.{alias.name}" for alias in statement.names)
        elif isinstance(statement, _RUN) and not _suppresses(statement):
            yield from _imported(statement.body)


def _suppresses(statement: ast.stmt) -> bool:
    """Return whether the statement is a `with suppress(ImportError)`."""
    return isinstance(statement, ast.With) and any("suppress" in ast.unparse(item) for item in statement.items)


def top_level(names: Iterable[str]) -> set[str]:
    """Return the top-level modules that ranks may lack, of these names and of what MLflow's modules need."""
    parts = [name.split(".") for name in names if name]
    of_mlflow = {part[1] for part in parts if part[0] == "mlflow" and len(part) > 1} & _PARTS_OF_MLFLOW.keys()
    needed = {module for name in of_mlflow for module in ("pandas", _PARTS_OF_MLFLOW[name]) if module}
    return ({part[0] for part in parts} | needed) - _ALWAYS


def source_of(function: types.FunctionType) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError, SyntaxError, tokenize.TokenError):  # made by exec, or its file is gone or has changed
        return ""


# --- functions that are called ----------------------------------------------------------------------------------------


def called(names: Iterable[str], functions: Iterable[types.FunctionType]) -> list[types.FunctionType]:
    """Return those of the functions whose own name, or whose class's, is among these names or in the code of another.

    A module that travels by value takes along functions that nobody calls.
    """
    known, found, waiting = set(names), list[types.FunctionType](), list(functions)
    while new := [each for each in waiting if known & _own_names(each)]:
        found += new
        waiting = [each for each in waiting if each not in new]
        known |= {name for each in new for name in _names_in(each.__code__)}
    return found


def names_of(value: Any) -> Iterator[str]:
    """Return the name of a function, class or module, or of the object's class; of a `partial`, what it is made of."""
    if isinstance(value, functools.partial):
        for part in (value.func, *value.args, *value.keywords.values()):
            yield from names_of(part)
    else:
        yield str(getattr(value, "__name__", type(value).__name__))


def _own_names(function: types.FunctionType) -> set[str]:
    return {*function.__qualname__.rpartition("<locals>.")[2].split(".")}


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from (*code.co_names, *code.co_freevars)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)


# --- modules of the cluster and of requirements -----------------------------------------------------------------------


def there_for(modules: Iterable[str], requirements: str, software: Mapping[str, Any]) -> set[str] | None:
    """Return the modules that the cluster has for code that imports these; None if the site does not tell.

    software: the response of `software/`.
    """
    if "modules" not in software:
        return None
    # Requirements of a comment alone ask for nothing, so that the site does not supply MLflow's client either.
    is_supplied = "mlflow" in set(modules) and (not requirements.strip() or any(all_lines(requirements, "")))
    return {*software["modules"], *(software["mlflow_modules"] if is_supplied else ())}


def not_brought(modules: Iterable[str], requirements: str) -> set[str]:
    """Return those of the modules that the requirements, one per line, do not bring; none where that is unknown.

    It is known of packages that are installed beside this program.
    """
    lines = [line.text for line in all_lines(requirements, "")]
    if not lines:
        return set(modules)
    brought = _with_their_own(lines)
    if brought is None:
        return set()
    packages = metadata.packages_distributions()
    return {each for each in modules if each in packages and not {*map(_folded, packages[each])} & brought}


def _with_their_own(lines: list[str]) -> set[str] | None:
    """Return the packages that these requirements name, and all that those require; None if it is unknown."""
    found, waiting = set[str](), [line for line in lines if not line.startswith("--")]
    while waiting:
        line, _, marker = waiting.pop().partition(";")
        name = _NAME.match(line)
        if name is None:
            return None  # a file of requirements or a project
        if (package := _folded(name[0])) in found:
            continue
        found.add(package)
        try:
            required = metadata.requires(package) or []
        except metadata.PackageNotFoundError:
            if marker and "[" not in line:  # for another system
                continue
            return None
        # Packages of extras count where any extra is asked for.
        waiting += [each for each in required if "[" in line or "extra ==" not in each.partition(";")[2]]
    return found


def _folded(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
