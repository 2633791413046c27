"""Scripts of a package, which `python -m package.train` runs: as a plain file they could not import their package."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

__all__ = ["ScriptModule", "module_of"]


@dataclass(frozen=True)
class ScriptModule:
    #: Folder that Python imports from, below the folder of the code; "..", if it is above that.
    root: str
    #: Name of the module, as in `python -m`.
    name: str


def module_of(folder: Path, entry_point: str) -> ScriptModule | None:
    """Return how `python -m` names the script, if it imports from its own package; None for a plain script.

    folder: of the code. Optional imports (in a function, an `if` or a `try`) do not count.
    """
    parts = PurePosixPath(entry_point).parts
    depth = _package_depth(folder, parts)
    level = max((level for level, _ in _imports(folder / entry_point)), default=0)
    if not level and not (depth and _needs_root(folder, parts, depth)):
        return None
    depth = max(depth, level)
    if depth >= len(parts):
        return ScriptModule("..", _name((folder.resolve().name, *parts)))
    root = PurePosixPath(*parts[: len(parts) - 1 - depth])
    return ScriptModule(root.as_posix(), _name(parts[len(parts) - 1 - depth :]))


def _name(parts: tuple[str, ...]) -> str:
    stem = parts[-1].removesuffix(".py")
    return ".".join(parts[:-1] if stem == "__main__" and len(parts) > 1 else (*parts[:-1], stem))


def _package_depth(folder: Path, parts: tuple[str, ...]) -> int:
    """Return the number of packages that the script is in, one inside of the other."""
    depth = 0
    while depth < len(parts) - 1 and (folder.joinpath(*parts[: len(parts) - 1 - depth]) / "__init__.py").is_file():
        depth += 1
    return depth


def _needs_root(folder: Path, parts: tuple[str, ...], depth: int) -> bool:
    """Return whether the script imports what stands in the folder of its package and not in its own."""
    beside, root = folder.joinpath(*parts[:-1]), folder.joinpath(*parts[: len(parts) - 1 - depth])
    tops = {module.partition(".")[0] for level, module in _imports(folder.joinpath(*parts)) if not level}
    return any(_is_module(root / top) and not _is_module(beside / top) for top in tops)


def _is_module(path: Path) -> bool:
    return (path / "__init__.py").is_file() or path.with_name(f"{path.name}.py").is_file()


def _imports(script: Path) -> Iterator[tuple[int, str]]:
    """Yield the level and the module of each import; nothing for a file that is no valid Python."""
    try:
        body = ast.parse(script.read_bytes()).body
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in body:
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.level, node.module or ""
