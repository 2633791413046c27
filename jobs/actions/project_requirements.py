"""Requirements of an own project (`-e .`), from its files and without running them. Pure."""

import ast
import configparser
import tomllib
from collections.abc import Callable
from typing import Any

__all__ = ["dependencies_of"]


def dependencies_of(folder: str, read: Callable[[str], str | None]) -> list[str] | None:
    """Return the requirements that the project in this folder states as constants; None if there is no project."""
    texts = {name: read(name if folder == "." else f"{folder}/{name}") for name in _READERS}
    found = [_READERS[name](text) for name, text in texts.items() if text is not None]
    return list(dict.fromkeys(each for part in found for each in part)) if found else None


def _of_pyproject(text: str) -> list[str]:
    try:
        project: Any = tomllib.loads(text).get("project", {})
    except tomllib.TOMLDecodeError:
        return []
    return _texts(project.get("dependencies") if isinstance(project, dict) else None)


def _of_setup_cfg(text: str) -> list[str]:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:
        return []
    lines = parser.get("options", "install_requires", fallback="").splitlines()
    return [line.strip() for line in lines if line.strip()]


def _of_setup_py(text: str) -> list[str]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return []
    keywords = [keyword for node in ast.walk(tree) if isinstance(node, ast.Call) for keyword in node.keywords]
    found = [keyword.value for keyword in keywords if keyword.arg == "install_requires"]
    lists = [each.elts for each in found if isinstance(each, ast.List | ast.Tuple)]
    return _texts([item.value for each in lists for item in each if isinstance(item, ast.Constant)])


def _texts(values: object) -> list[str]:
    return [value for value in values if isinstance(value, str)] if isinstance(values, list) else []


_READERS = {"pyproject.toml": _of_pyproject, "setup.cfg": _of_setup_cfg, "setup.py": _of_setup_py}
