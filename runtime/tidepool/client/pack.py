"""Selection of a local folder's files to send: those known to git, or all except hidden files and environments.

The archive is reproducible, so that the site recognizes unchanged files as the same version.
"""

import ast
import os
import subprocess
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from tidepool.client.errors import InvalidRequest
from tidepool.script_modules import module_of
from tidepool.units import size_words

__all__ = ["MAX_BYTES", "Package", "archived", "package", "write_zip"]

#: Size limit of code; larger folders nearly always contain data by mistake.
MAX_BYTES = 256 * 1024**2
_LEFT_OUT = frozenset({"__pycache__", "node_modules", "venv", "env", "site-packages"})
_SUFFIXES_LEFT_OUT = (".pyc", ".pyo", ".egg-info")
#: Name of the file of requirements that the site reads beside a script.
_REQUIREMENTS = "requirements.txt"
_SAY_NOTHING = frozenset({"train", "main", "run", "__main__", "script", "finetune"})
_EPOCH = (1980, 1, 1, 0, 0, 0)


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

    @property
    def name(self) -> str:
        """Return the model's name on the site: the script's name, or its folder's if the script's is generic."""
        stem = Path(self.entry_point).stem
        return stem if stem and stem not in _SAY_NOTHING else self.folder.name or "script"


def package(path: str | Path) -> Package:
    """Pack the code of a script or folder.

    For a script: its folder's files known to git or, without git, the script and its imports from the same folder. If
    it imports from its own package, the folder is that of the package. For a folder: the files known to git, or all
    except hidden files and environments. Raises InvalidRequest for a missing path, an empty selection, and too much
    data.
    """
    given = Path(path).expanduser()
    if not given.exists():
        raise InvalidRequest(f"There is no {given}: check the path.")
    if given.is_file() and given.suffix != ".py":
        raise InvalidRequest(f"{given} is not a Python script: give a .py file or a folder.")
    folder, entry_point = (given.resolve(), "") if given.is_dir() else _place_of(given.resolve())
    known = _known_to_git(folder)
    if known is not None and (not entry_point or Path(entry_point) in known):
        files, chosen_by = known, "what git knows"
    elif entry_point:
        files, chosen_by = _imported(folder, entry_point), "the script, and what it imports and requires beside it"
    else:
        files, chosen_by = sorted(_all_below(folder)), "all but hidden files and environments"
    return _checked(Package(folder, tuple(files), _bytes_of(folder, files), chosen_by, entry_point))


@contextmanager
def archived(code: Package) -> Iterator[IO[bytes]]:
    """Return the archive, positioned at its start."""
    with TemporaryFile() as archive:
        write_zip(code, archive)
        archive.seek(0)
        yield archive


def write_zip(code: Package, target: IO[bytes]) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
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


def _all_below(folder: Path) -> Iterable[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = [each for each in folders if _is_meant(each) and not (Path(place) / each / "pyvenv.cfg").exists()]
        for name in names:
            file = Path(place) / name
            if _is_meant(name) and _is_sent(file):
                yield file.relative_to(folder)


def _is_meant(name: str) -> bool:
    return not name.startswith(".") and name not in _LEFT_OUT and not name.endswith(_SUFFIXES_LEFT_OUT)


def _place_of(script: Path) -> tuple[Path, str]:
    """Return the folder that the script is run in, and its path there."""
    module = module_of(Path(script.anchor), script.relative_to(script.anchor).as_posix())
    folder = script.parent if module is None else Path(script.anchor, module.root)
    return folder, script.relative_to(folder).as_posix()


def _imported(folder: Path, script: str) -> list[Path]:
    """Return the script, the modules of its folder that it imports, directly or indirectly, and its
    requirements.txt."""
    found: set[Path] = set()
    waiting = [Path(script), Path(_REQUIREMENTS)]
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


def _imports_of(file: Path) -> set[str]:
    if file.suffix != ".py":
        return set()
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return set()  # the site says what is wrong with it
    plain = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
