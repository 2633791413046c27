"""Bundles: the modules that a page loads together, combined into one file when static files are collected.

Until then, the small source files are served individually. A bundle contains each module as a function, after the
modules that it imports. Pages use the modules of the frame's bundle, so each module runs once. A bundle exports its
modules for the frame's pages, for tests, and for debugging in a browser's console.
"""

import posixpath
import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["FRAME", "Bundles", "bundled"]

#: Bundle of every page; a page has at most one more, of the folder `pages`.
FRAME = "js/frame.js"
_PAGES = "js/pages/*.js"

_IMPORT = re.compile(r'^import (?:\{([^}]*)\} from )?"(\.[^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.MULTILINE)
_NOT_READ = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


@dataclass(frozen=True)
class Bundles:
    #: Text of each bundle, by the path of the module that imports the rest.
    texts: dict[str, str]
    #: Paths of bundled modules that no page loads directly.
    parts: frozenset[str]


def bundled(folder: Path) -> Bundles:
    """Return the bundles of a folder of static files. Raise ValueError with a line or import that cannot be bundled."""
    frame = _modules(folder, FRAME)
    texts = {FRAME: _as_functions(frame)}
    parts = set(frame)
    for page in sorted(path.relative_to(folder).as_posix() for path in folder.glob(_PAGES)):
        modules = _modules(folder, page)
        own = {path: text for path, text in modules.items() if path not in frame}
        taken = ", ".join(_name(path) for path in modules if path in frame)
        address = posixpath.relpath(FRAME, posixpath.dirname(page))
        texts[page] = (f'import {{ {taken} }} from "{address}";\n' if taken else "") + _as_functions(own)
        parts |= modules.keys()
    return Bundles(texts, frozenset(parts - texts.keys()))


def _resolve(path: str, imported: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), imported))


def _modules(folder: Path, entry: str) -> dict[str, str]:
    """Return the text of each module that `entry` needs, by path, imported modules first."""
    found: dict[str, str] = {}

    def find(path: str, above: tuple[str, ...]) -> None:
        if path in above:
            raise ValueError(f"{path} imports itself: {' -> '.join((*above, path))}")
        if path in found:
            return
        text = (folder / path).read_text()
        for names, imported in _IMPORT.findall(text):
            source = _resolve(path, imported)
            find(source, (*above, path))
            if missing := _imported(names) - set(_EXPORT.findall(found[source])):
                raise ValueError(f"{path}: {source} does not export {', '.join(sorted(missing))}")
        found[path] = text

    find(entry, ())
    return found


def _imported(names: str) -> set[str]:
    return {name.split(" as ")[0].strip() for name in names.split(",") if name.strip()}


def _as_functions(modules: dict[str, str]) -> str:
    functions = "".join(_as_function(path, text) for path, text in modules.items())
    return f"{functions}export {{ {', '.join(map(_name, modules))} }};\n"


def _as_function(path: str, text: str) -> str:
    def take(match: re.Match[str]) -> str:
        names, imported = match.groups()
        return f"const {{{names.replace(' as ', ': ')}}} = {_name(_resolve(path, imported))};\n" if names else ""

    body = _EXPORT.sub("", _IMPORT.sub(take, text))
    if line := _NOT_READ.search(body):
        raise ValueError(f"{path}: this line is not supported in bundles: {line[0]}")
    return f"const {_name(path)} = (() => {{\n{body}\nreturn {{ {', '.join(_EXPORT.findall(text))} }};\n}})();\n"


def _name(path: str) -> str:
    return "$" + re.sub(r"\W", "_", path.removeprefix("js/").removesuffix(".js"))
