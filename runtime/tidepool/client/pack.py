"""Selection of a local folder's files to send: those known to git, or all except hidden files and environments.

Links, and files that the code opens and the rule leaves out, are named, so that people can include them. The archive is
reproducible, so that the site recognizes unchanged files as the same version.
"""

import ast
import os
import re
import shutil
import stat
import subprocess
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO

from tidepool.client.errors import InvalidRequest
from tidepool.function_payload import LAUNCHER_SOURCE
from tidepool.requirement_files import (
    CONDA_FILES,
    FILE,
    LOCK_FILE,
    OTHER_FILES,
    PROJECT_FILES,
    PYTHON_FILE,
    all_lines,
    included_file,
    projects_in,
    read_all,
    text_of,
)
from tidepool.script_modules import module_of
from tidepool.units import size_words

__all__ = ["MAX_BYTES", "LeftOut", "Package", "archived", "on_cpus", "package", "requirements_of", "write_zip"]

#: Size limit of code; larger folders nearly always contain data by mistake.
MAX_BYTES = 256 * 1024**2
_LEFT_OUT = frozenset({"__pycache__", "node_modules", "venv", "env", "site-packages"})
_SUFFIXES_LEFT_OUT = (".pyc", ".pyo", ".egg-info")
_SAY_NOTHING = frozenset({"train", "main", "run", "__main__", "script", "finetune"})
#: String in a source that may be the path of a file or folder beside it.
_PATH = re.compile(r"(?!\.{0,2}/?$)[\w./@+ -]{1,200}")
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class LeftOut:
    """Something in the folder that is not sent, although the training may need it."""

    path: Path
    #: The reason, as the end of a sentence.
    why: str

    @property
    def sentence(self) -> str:
        return f"{self.path.as_posix()} is not sent, because {self.why}"


@dataclass(frozen=True)
class Package:
    folder: Path
    #: Paths below the folder, in order.
    files: tuple[Path, ...]
    total_bytes: int
    #: The rule by which the files were chosen, as the end of a sentence.
    chosen_by: str
    #: The given script; "": the site finds it.
    entry_point: str
    #: Paths of empty folders.
    empty_folders: tuple[Path, ...] = ()
    #: Links, and what the code opens, that are not sent.
    left_out: tuple[LeftOut, ...] = ()
    #: Folder that the code was written in, if `folder` is a copy; None: `folder`.
    origin: Path | None = None

    @property
    def name(self) -> str:
        """Return the model's name on the site: the script's name, or its folder's if the script's is generic."""
        stem = Path(self.entry_point).stem
        return stem if stem and stem not in _SAY_NOTHING else self.folder.name or "script"


def package(path: str | Path, include: Iterable[str] = ()) -> Package:
    """Pack the code of a script or folder.

    For a script: its folder's files known to git or, without git, the script and its imports from the same folder. If
    it imports from its own package, the folder is that of the package. For a folder: the files known to git, or all
    except hidden files and environments. include: further files and folders below it; of a link, its content is sent.
    Raises InvalidRequest for a missing path, an empty selection, and too much data.
    """
    given = Path(path).expanduser()
    if not given.exists():
        raise InvalidRequest(f"There is no {given}: check the path.")
    if given.is_file() and given.suffix != ".py":
        raise InvalidRequest(f"{given} is not a Python script: give a .py file or a folder.")
    folder, entry_point = (given.resolve(), "") if given.is_dir() else _place_of(given.resolve())
    known = _known_to_git(folder)
    is_alone = False
    if known is not None and (not entry_point or Path(entry_point) in known):
        files, chosen_by, why = known, "what git knows", "git ignores it (.gitignore)"
    elif entry_point:
        files, chosen_by = _imported(folder, entry_point), "the script, and what it imports and requires beside it"
        why, is_alone = "the script does not import it", True
    else:
        files, chosen_by = sorted(_all_below(folder)), "all but hidden files and environments"
        why = "it is hidden or an environment"
    chosen = sorted({*files, *(file for each in include for file in _included(folder, each))})
    named = _named(folder, entry_point, chosen)
    # A script alone goes with what it names; a project goes with all that is in its folder.
    folders = [each for each in _empty_below(folder) if each in named or not is_alone]
    links = [each for each in _links(folder, chosen) if each.path in named or not is_alone]
    left_out = [*links, *(LeftOut(each, why) for each in sorted(named) if _is_left_out(folder, each, chosen))]
    return _checked(
        Package(
            folder, tuple(chosen), _bytes_of(folder, chosen), chosen_by, entry_point, tuple(folders), tuple(left_out)
        )
    )


def requirements_of(file: Path) -> str:
    """Return the lines of a file of requirements, at their places, and behind them those that it includes."""
    texts = [*read_all(file.name, partial(_text_below, file.parent))]
    return "\n".join(line for name, text in texts for line in _without_includes(text, name))


def _without_includes(text: str, name: str) -> list[str]:
    lines = text.splitlines()
    for line in all_lines(text, name):
        if included_file(line) is not None:
            lines[line.number - 1] = ""
    return lines


@contextmanager
def archived(code: Package) -> Iterator[IO[bytes]]:
    """Return the archive, positioned at its start."""
    with TemporaryFile() as archive:
        write_zip(code, archive)
        archive.seek(0)
        yield archive


@contextmanager
def on_cpus(code: Package, count: int) -> Iterator[Package]:
    """Return the code with an entry point that runs its script in several processes on the CPUs of one host."""
    script = Path(code.entry_point)
    with TemporaryDirectory(prefix="tidepool-") as made:
        folder = Path(made, code.folder.name or "script")
        for each in code.empty_folders:
            (folder / each).mkdir(parents=True)
        for file in code.files:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(code.folder / file, folder / file)
        entry = script.with_name(f"{script.stem}_on_cpus.py")
        (folder / entry).write_text(LAUNCHER_SOURCE.format(script=script.as_posix(), count=count))
        yield replace(
            code,
            folder=folder,
            files=(*code.files, entry),
            entry_point=entry.as_posix(),
            left_out=(),
            origin=code.folder,
        )


def write_zip(code: Package, target: IO[bytes]) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for folder in code.empty_folders:
            entry = zipfile.ZipInfo(f"{folder.as_posix()}/", _EPOCH)
            entry.external_attr = (stat.S_IFDIR | 0o755) << 16
            archive.writestr(entry, b"")
        for file in code.files:
            entry = zipfile.ZipInfo(file.as_posix(), _EPOCH)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            with (code.folder / file).open("rb") as source, archive.open(entry, "w") as there:
                while piece := source.read(1024**2):
                    there.write(piece)


def _checked(code: Package) -> Package:
    if not code.files:
        raise InvalidRequest(f"There is nothing to send in {code.folder}: give the folder of your script.")
    if code.total_bytes > MAX_BYTES:
        largest = max(code.files, key=lambda file: (code.folder / file).stat().st_size)
        top = largest.parts[0]
        raise InvalidRequest(
            f"{code.folder} is {size_words(code.total_bytes)}, the largest part of it {top}. Register data as a "
            f"dataset (`tidepool datasets add`), or exclude it by .gitignore."
        )
    return code


def _bytes_of(folder: Path, files: Iterable[Path]) -> int:
    return sum((folder / file).stat().st_size for file in files)


def _known_to_git(folder: Path) -> list[Path] | None:
    """Return tracked files, and new ones that git does not ignore; None without git or outside a working tree."""
    command = ["git", "-C", str(folder), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        found = subprocess.run(command, capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if found.returncode:
        return None
    names = {os.fsdecode(name) for name in found.stdout.split(b"\0") if name}
    # Deleted files are still tracked, and a link may lead out of the folder.
    return sorted(Path(name) for name in names if _is_sent(folder / name)) or None


def _is_sent(file: Path) -> bool:
    return file.is_file() and not file.is_symlink()


def _walked(folder: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Yield each meant folder below this one, with the names of its meant folders and of its files."""
    for place, folders, names in os.walk(folder):
        folders[:] = [each for each in folders if _is_meant(each) and not (Path(place) / each / "pyvenv.cfg").exists()]
        yield Path(place), folders, names


def _all_below(folder: Path) -> Iterable[Path]:
    for place, _, names in _walked(folder):
        for name in names:
            if _is_meant(name) and _is_sent(place / name):
                yield (place / name).relative_to(folder)


def _empty_below(folder: Path) -> list[Path]:
    """Return the folders that contain nothing, such as one for results that a repository has no files of."""
    places = [place for place, _, _ in _walked(folder) if place != folder and not any(place.iterdir())]
    return sorted(place.relative_to(folder) for place in places)


def _links(folder: Path, sent: Iterable[Path]) -> Iterator[LeftOut]:
    for place, folders, names in _walked(folder):
        for name in sorted(each for each in (*folders, *names) if _is_meant(each) and (place / each).is_symlink()):
            path = (place / name).relative_to(folder)
            if not any(each == path or path in each.parents for each in sent):
                yield LeftOut(path, f"it is a link to {os.readlink(place / name)}")


def _named(folder: Path, script: str, sent: Iterable[Path]) -> set[Path]:
    """Return the paths below the folder that strings in the code may mean."""
    places = {Path("."), Path(script).parent}
    return {place / word for file in sent for word in _words_of(folder / file) for place in places}


def _is_left_out(folder: Path, path: Path, sent: Iterable[Path]) -> bool:
    """Return whether there is such a file, or a folder with files, and nothing of it is sent."""
    there = folder / path
    if path.is_absolute() or ".." in path.parts or any((folder / each).is_symlink() for each in (path, *path.parents)):
        return False
    if any(path == file or path in file.parents for file in sent):
        return False
    return there.is_file() or (there.is_dir() and any(there.iterdir()))


def _words_of(file: Path) -> set[str]:
    """Return the strings of a source that may be paths."""
    tree = _tree_of(file)
    constants = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)] if tree else []
    return {each for each in constants if isinstance(each, str) and _PATH.fullmatch(each)}


def _included(folder: Path, path: str) -> Iterator[Path]:
    """Yield the files of a path that the user includes. Raises InvalidRequest if it is not below the folder."""
    place = Path(os.path.normpath(folder / Path(path).expanduser()))
    if not place.is_relative_to(folder):
        raise InvalidRequest(f"{path} is not in {folder}: include files of that folder only.")
    if not place.exists():
        raise InvalidRequest(f"There is no {place}: check --include.")
    if place.is_file():
        yield place.relative_to(folder)
        return
    for inner, _, names in os.walk(place, followlinks=False):
        yield from (Path(inner, name).relative_to(folder) for name in names if Path(inner, name).is_file())


def _is_meant(name: str) -> bool:
    return not name.startswith(".") and name not in _LEFT_OUT and not name.endswith(_SUFFIXES_LEFT_OUT)


def _place_of(script: Path) -> tuple[Path, str]:
    """Return the folder that the script is run in, and its path there."""
    module = module_of(Path(script.anchor), script.relative_to(script.anchor).as_posix())
    folder = script.parent if module is None else Path(script.anchor, module.root)
    return folder, script.relative_to(folder).as_posix()


def _imported(folder: Path, script: str) -> list[Path]:
    """Return the script, the modules of its folder that it imports, directly or indirectly, and the files of its
    requirements, with the own projects that they name."""
    found: set[Path] = set()
    waiting = [Path(script), *_required(folder)]
    while waiting:
        file = waiting.pop()
        if file in found or not _is_sent(folder / file):
            continue
        found.add(file)
        if len(file.parts) > 1 and file == Path(script):  # a module may import any other of its package
            waiting += [Path(file.parts[0]) / inner for inner in _all_below(folder / file.parts[0])]
        for name in _imports_of(folder / file):
            top = name.partition(".")[0]
            if (folder / top).is_dir():
                waiting += [Path(top) / inner for inner in _all_below(folder / top)]
            else:
                waiting.append(Path(f"{top}.py"))
    return sorted(found)


def _required(folder: Path) -> Iterator[Path]:
    texts = list(read_all(FILE, partial(_text_below, folder)))
    for name, text in texts:
        yield Path(name)
        for place in projects_in(text):
            yield from (Path(place) / inner for inner in _all_below(folder / place) if (folder / place).is_dir())
    yield from map(Path, (*PROJECT_FILES, LOCK_FILE, PYTHON_FILE, *OTHER_FILES))
    if not texts:
        yield from map(Path, CONDA_FILES)


def _text_below(folder: Path, name: str) -> str | None:
    path = folder / name
    return text_of(path.read_bytes()) if ".." not in path.parts and _is_sent(path) else None


def _imports_of(file: Path) -> set[str]:
    tree = _tree_of(file)
    if tree is None:
        return set()
    plain = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}


def _tree_of(file: Path) -> ast.AST | None:
    if file.suffix != ".py":
        return None
    try:
        return ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return None  # the site says what is wrong with it
