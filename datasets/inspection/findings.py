"""Parts of a dataset (folders for training, validation and testing), and the findings of an inspection."""

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

__all__ = [
    "ROLES",
    "Column",
    "Files",
    "Findings",
    "Head",
    "Part",
    "PartFindings",
    "Piece",
    "Progress",
    "Sample",
    "Tick",
    "file_word",
    "files_of",
    "parts_of",
    "role_of_file",
]

#: Largest number of problems that are named.
_MAX_SENTENCES = 20
#: Callback for the fraction of the work that is done, 0 to 1. It may raise an exception to stop the work.
Progress = Callable[[float], None]
#: Callback for the number of bytes that were read.
Tick = Callable[[int], None]
#: Role -> names of folders and files that people and IBM's tutorials use for it.
ROLES = {
    "training": ("train", "training", "train_db", "train_data"),
    "validation": ("val", "valid", "validation", "val_db", "validation_db", "dev"),
    "testing": ("test", "testing", "test_db", "test_data"),
}
#: Suffixes of files that contain many samples each.
_SPLIT_BY_FILE = frozenset({".csv", ".tsv", ".npz"})
_CIFAR = frozenset({"test_batch", "batches.meta", "readme.html", *(f"data_batch_{number}" for number in range(1, 6))})
_ROLE_OF = {word: role for role, words in ROLES.items() for word in words}


@dataclass(frozen=True)
class Part:
    """One of the folders that a dataset consists of."""

    #: Role of the part: "training", "validation", "testing", or "" if one folder contains everything.
    role: str
    folder: Path
    #: Name of the folder in messages and previews; "" for the dataset itself.
    name: str = ""


@dataclass
class Files:
    """Files of a part."""

    #: Plain files: (name relative to the part, path, bytes), sorted by name.
    regular: list[tuple[str, Path, int]] = field(default_factory=list)
    #: Number of links and devices, which are left out. Names that begin with a dot are not counted.
    left_out: int = 0
    #: Folders that cannot be read: (name, error of the operating system).
    unreadable: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class PartFindings:
    role: str
    folder: str
    files: int = 0
    size_bytes: int = 0
    #: Number of images or rows.
    items: int = 0
    classes: dict[str, int] = field(default_factory=dict)

    def count(self, label: str, items: int = 1) -> None:
        self.classes[label] = self.classes.get(label, 0) + items


@dataclass
class Piece:
    """Files of a part that serve the same purpose."""

    findings: PartFindings
    #: Files: name in messages -> path.
    files: dict[str, Path]
    #: All files of the part, whatever their role: name in messages -> path.
    beside: dict[str, Path]


@dataclass(frozen=True)
class Sample:
    """One image: a file of the dataset, or a PNG (base64) made from its numbers."""

    label: str
    role: str
    file: str = ""
    png: str = ""


@dataclass
class Column:
    name: str
    is_number: bool
    missing: int = 0
    #: Statistics; None for a column that is not numeric.
    least: float | None = None
    most: float | None = None
    mean: float | None = None


@dataclass
class Head:
    """The first rows of a table."""

    file: str
    columns: list[str]
    rows: list[list[str]]


@dataclass
class Findings:
    format: str = "files"
    parts: list[PartFindings] = field(default_factory=list)
    #: Sentences that say why the dataset cannot be used.
    problems: list[str] = field(default_factory=list)
    #: Sentences that users of the dataset should know.
    warnings: list[str] = field(default_factory=list)
    columns: list[Column] = field(default_factory=list)
    head: Head | None = None
    samples: list[Sample] = field(default_factory=list)

    def refuse(self, sentence: str) -> None:
        """Add a problem. After `_MAX_SENTENCES`, one sentence says that there are more."""
        if len(self.problems) < _MAX_SENTENCES:
            self.problems.append(sentence)
        elif len(self.problems) == _MAX_SENTENCES:
            self.problems.append("There are more problems of this kind: correct these first.")

    def warn(self, sentence: str) -> None:
        if len(self.warnings) < _MAX_SENTENCES and sentence not in self.warnings:
            self.warnings.append(sentence)

    def warn_of_others(self, names: list[str]) -> None:
        if names:
            self.warn(f"{file_word(len(names))} of another kind, such as {names[0]}, not counted.")

    def summary(self) -> dict[str, Any]:
        """Return the findings as JSON, without samples and problems, which are stored in columns of their own."""
        values = asdict(self)
        for name in ("samples", "problems"):
            del values[name]
        return values


def file_word(count: int, what: str = "file") -> str:
    """Return the count with the word, such as "1 file" or "2 files"."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def parts_of(folder: Path) -> list[Part]:
    """Return the parts of a folder by their names, such as `train`; the folder itself if it has no training part."""
    if folder.is_file():
        return [Part("", folder)]
    names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))
    known = {name: role for name in names if (role := _ROLE_OF.get(name.lower()))}
    roles = list(known.values())
    # A class may have such a name, too: "train" beside "car" and "plane" is a vehicle.
    is_split = "training" in roles and len(set(roles)) == len(roles) and (len(roles) > 1 or len(names) == 1)
    if not is_split:
        return [Part("", folder)]
    order = list(ROLES)
    return [
        Part(role, folder / name, name) for name, role in sorted(known.items(), key=lambda item: order.index(item[1]))
    ]


def role_of_file(name: str) -> str:
    """Return the role that a file's name shows, such as train.csv or CIFAR's test_batch; otherwise ""."""
    path = Path(name)
    if path.name in _CIFAR:
        return "testing" if path.name == "test_batch" else "training"
    return _ROLE_OF.get(path.stem.lower(), "") if path.suffix.lower() in _SPLIT_BY_FILE else ""


def files_of(part: Part) -> Files:
    """Return the files of a part. Links are not followed, except the part's own folder, checked at registration."""
    found = Files()
    if part.folder.is_file():
        found.regular.append((part.folder.name, part.folder, part.folder.stat().st_size))
        return found
    for name, entry in sorted(_entries(part.folder, "", found)):
        found.regular.append((name, Path(entry.path), entry.stat(follow_symlinks=False).st_size))
    return found


def _entries(folder: Path, prefix: str, found: Files) -> Iterator[tuple[str, os.DirEntry[str]]]:
    try:
        entries = list(os.scandir(folder))
    except OSError as error:
        found.unreadable.append((prefix or folder.name, error.strerror or str(error)))
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _entries(folder / entry.name, f"{prefix}{entry.name}/", found)
        elif entry.is_file(follow_symlinks=False):
            yield f"{prefix}{entry.name}", entry
        else:
            found.left_out += 1
