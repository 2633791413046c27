"""Files of requirements as pip reads them: their text, their lines, and the files that they name.

Shared by the client, which sends these files, and the site, which reads them.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

__all__ = [
    "CONDA_FILES",
    "FILE",
    "LOCK_FILE",
    "OTHER_FILES",
    "PROJECT_FILES",
    "PYTHON_FILE",
    "Line",
    "all_lines",
    "included_file",
    "own_project",
    "projects_in",
    "read_all",
    "split_list",
    "text_of",
]

#: Name of the file of requirements that the site reads beside a script.
FILE = "requirements.txt"
#: Names of conda's files, read where there is no `requirements.txt`.
CONDA_FILES = ("environment.yml", "environment.yaml")
#: Files of an own project (`-e .`) that say what it requires.
PROJECT_FILES = ("pyproject.toml", "setup.cfg", "setup.py")
#: Name of the file in which uv writes the versions of a project.
LOCK_FILE = "uv.lock"
#: Files of Poetry, pipenv and pip-tools, read where no other file states requirements.
OTHER_FILES = ("poetry.lock", "Pipfile", "Pipfile.lock", "requirements.in")
#: Name of the file in which uv and pyenv keep the version of Python that a project uses.
PYTHON_FILE = ".python-version"
_BYTE_ORDER_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb\xbf": "utf-8-sig"}
_COMMENT = re.compile(r"(^|\s+)#.*$")
_INCLUDE = re.compile(r"(?:-r|--requirement)(?:\s+|=|(?=[^-\s]))(?P<file>.+)")
_EDITABLE = re.compile(r"(?:-e|--editable)(?:\s+|=)(?P<place>.+)")
_URL = re.compile(r"[a-z+]+:", re.IGNORECASE)
#: Comma before another name, and not before a second limit or extra.
_BETWEEN = re.compile(r",(?=\s*[A-Za-z])(?![^\[]*\])")
_EXTRAS = re.compile(r"\[[\w\s,.-]*\]$")


@dataclass(frozen=True)
class Line:
    """A line as it is meant: continued ones joined, without its comment."""

    #: Path of the file, relative to the top folder; "": a text that the user typed.
    file: str
    number: int
    text: str
    #: Whether it names a package of conda, as in `environment.yml`.
    is_conda: bool = False


def text_of(content: bytes) -> str:
    """Return the text of a file, in the encoding of its byte order mark: PowerShell writes UTF-16."""
    encoding = next((name for mark, name in _BYTE_ORDER_MARKS.items() if content.startswith(mark)), "utf-8")
    return content.decode(encoding, errors="replace")


def all_lines(text: str, file: str) -> Iterator[Line]:
    """Yield the lines of one file that are not empty."""
    begun, first = "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        first = first or number
        if line.endswith("\\") and not line.lstrip().startswith("#"):
            begun += line[:-1]
            continue
        whole = _COMMENT.sub("", begun + line).strip()
        if whole:
            yield Line(file, first, whole)
        begun, first = "", 0
    if begun.strip():
        yield Line(file, first, begun.strip())


def included_file(line: Line) -> str | None:
    """Return the path of the file that a line such as `-r base.txt` includes; None for other lines."""
    found = _INCLUDE.fullmatch(line.text)
    return _beside(line.file, found["file"].strip("\"' ")) if found else None


def own_project(line: Line) -> str | None:
    """Return the folder of an own project, as in `-e .` or `./package[extra]`; None for other lines."""
    found = _EDITABLE.fullmatch(line.text)
    place = _EXTRAS.sub("", (found["place"] if found else line.text).strip("\"' ")).strip()
    if _URL.match(place):
        return None
    is_path = found is not None or place == "." or place.startswith(("./", "../"))
    return _beside(line.file, place) if is_path and not place.endswith((".whl", ".gz", ".zip")) else None


def projects_in(requirements: str) -> list[str]:
    """Return the folders of the own projects in checked requirements."""
    return [place for line in all_lines(requirements, "") if (place := own_project(line)) is not None]


def split_list(text: str) -> list[str]:
    """Return the requirements of a list on one line, such as `timm>=1,<2, wandb[media]`."""
    return [each for part in _BETWEEN.split(text) if (each := part.strip())]


def _beside(file: str, path: str) -> str:
    """Return a path that a file names, relative to the same top folder as the file; one that leaves it begins with `..`
    or `/`."""
    parts: list[str] = []
    for part in (PurePosixPath(file).parent / path).parts:
        if part == ".." and parts and parts[-1] not in ("..", "/"):
            parts.pop()
        elif part != ".":
            parts.append(part)
    return str(PurePosixPath(*parts))


def read_all(file: str, read: Callable[[str], str | None]) -> Iterator[tuple[str, str]]:
    """Yield path and text of a file of requirements and of those that it includes, each once."""
    waiting, seen = [file], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen or (text := read(name)) is None:
            continue
        seen.add(name)
        yield name, text
        waiting += [each for line in all_lines(text, name) if (each := included_file(line)) is not None]
