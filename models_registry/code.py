"""Looks at a model's code without running it."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from webapp.lib.errors import field_error
from webapp.lib.folders import regular_files

__all__ = ["COMPAT_MODULES", "CodeFacts", "checked_entry_point", "inspect_code"]

#: Compatibility folder -> what a script imports when it is written for that system.
COMPAT_MODULES = {"wmla": frozenset({"fabric_model", "pyedt"})}

_CANDIDATES_SHOWN = 5
_MAX_SOURCE_BYTES = 4 * 1024**2


@dataclass(frozen=True)
class CodeFacts:
    compat: list[str]
    #: What is wrong with the script as Python sees it; it may be registered all the same.
    warning: str | None


def checked_entry_point(folder: Path, entry_point: str) -> str:
    """The entry point relative to `folder`, which holds it as a regular file."""
    try:
        file = (folder / entry_point).resolve()
        relative = file.relative_to(folder.resolve()).as_posix()
        found = bool(entry_point) and file.is_file()
    except (OSError, ValueError):
        relative, found = "", False
    if not found:
        raise field_error("entry_point", _not_found(folder, entry_point))
    if len(relative) > 255:
        raise field_error("entry_point", "The entry point's path has more than 255 characters: move it up.")
    return relative


def inspect_code(folder: Path, entry_point: str) -> CodeFacts:
    imported: set[str] = set()
    warning = None
    for name, file in regular_files(folder):
        if not name.endswith(".py") or file.stat().st_size > _MAX_SOURCE_BYTES:
            continue
        try:
            tree = ast.parse(file.read_bytes())
        # ast reports deep nesting by MemoryError or RecursionError, and NUL bytes by ValueError.
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            if name == entry_point:
                warning = f"{name} is not valid Python ({error}): a job with it will fail."
            continue
        imported |= _imported_modules(tree)
    compat = sorted(name for name, modules in COMPAT_MODULES.items() if modules & imported)
    return CodeFacts(compat, warning)


def _imported_modules(tree: ast.AST) -> set[str]:
    modules = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            modules.add(node.module.split(".")[0])
    return modules


def _not_found(folder: Path, entry_point: str) -> str:
    scripts = [name for name, _ in regular_files(folder) if name.endswith(".py")]
    if not scripts:
        return f"The entry point {entry_point[:100]!a} is not there, nor any Python script: put it into the folder."
    listed = ", ".join(scripts[:_CANDIDATES_SHOWN]) + (", …" if len(scripts) > _CANDIDATES_SHOWN else "")
    return f"The entry point {entry_point[:100]!a} is not in the model's folder: name one of {listed}."
