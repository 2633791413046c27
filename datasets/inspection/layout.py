"""The parts of a dataset: folders for training, for validation and for testing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from datasets.inspection.findings import Part

__all__ = ["ROLES", "Files", "files_of", "parts_of", "role_of_file"]

#: The words by which people and IBM's tutorials name them.
ROLES = {
    "training": ("train", "training", "train_db", "train_data"),
    "validation": ("val", "valid", "validation", "val_db", "validation_db", "dev"),
    "testing": ("test", "testing", "test_db", "test_data"),
}
#: Formats in which one file holds many samples.
_SPLIT_BY_FILE = frozenset({".csv", ".tsv", ".npz"})
_CIFAR = frozenset({"test_batch", "batches.meta", "readme.html", *(f"data_batch_{number}" for number in range(1, 6))})
_ROLE_OF = {word: role for role, words in ROLES.items() for word in words}


@dataclass
class Files:
    """Files of a part: (name relative to it, file, bytes), sorted by name."""

    regular: list[tuple[str, Path, int]] = field(default_factory=list)
    #: Links and devices, which are left out; names that begin with a dot are not even counted.
    left_out: int = 0
    #: (name, what the operating system says)
    unreadable: list[tuple[str, str]] = field(default_factory=list)


def parts_of(folder: Path) -> list[Part]:
    """The folder's parts by their names, `train` and so on; the folder itself where there is no training part."""
    if folder.is_file():
        return [Part("", folder)]
    names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))
    known = {name: role for name in names if (role := _ROLE_OF.get(name.lower()))}
    roles = list(known.values())
    # Classes may be called so, too: "train" beside "car" and "plane" is a vehicle.
    is_split = "training" in roles and len(set(roles)) == len(roles) and (len(roles) > 1 or len(names) == 1)
    if not is_split:
        return [Part("", folder)]
    order = list(ROLES)
    return [
        Part(role, folder / name, name) for name, role in sorted(known.items(), key=lambda item: order.index(item[1]))
    ]


def role_of_file(name: str) -> str:
    """train.csv, test.npz and CIFAR's test_batch say themselves what they are for; "" where a name does not."""
    path = Path(name)
    if path.name in _CIFAR:
        return "testing" if path.name == "test_batch" else "training"
    return _ROLE_OF.get(path.stem.lower(), "") if path.suffix.lower() in _SPLIT_BY_FILE else ""


def files_of(part: Part) -> Files:
    """Links are not followed, except the part's own folder, which registration has checked."""
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
