"""Inspection of a dataset: size and digest of its files, then their format and whether it fits the chosen kind."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from datasets.inspection import cifar, csv_files, numpy_files, pictures
from datasets.inspection.findings import (
    ROLES,
    Files,
    Findings,
    Part,
    PartFindings,
    Piece,
    Progress,
    Tick,
    file_word,
    files_of,
    role_of_file,
)

__all__ = ["Inspection", "inspect"]

_CHUNK = 1024 * 1024
#: Fraction of the time that reading all bytes takes; parsing takes the rest.
_READING = 0.7
_EXPECTED = {
    "images": "There are no labelled images: put the images of each class into one folder (train/cat/1.jpg), "
    "or use CIFAR-10's python batches or .npz files with labels, or choose the format Any.",
    "csv": "There is no .csv or .tsv file: add one, or choose the format Any.",
}


@dataclass(frozen=True)
class Inspection:
    findings: Findings
    file_count: int
    size_bytes: int
    #: sha256 over the sorted names, sizes and contents.
    digest: str


def inspect(parts: Sequence[Part], kind: str, progress: Progress = lambda _: None) -> Inspection:
    """Return the findings for the kind "any", "images" or "csv", with errors as problems. Only `progress` may raise."""
    findings = Findings()
    found = [(part, files_of(part)) for part in parts]
    size_bytes = sum(size for _, files in found for _, _, size in files.regular)
    file_count = sum(len(files.regular) for _, files in found)
    for part, files in found:
        _note_what_is_left_out(findings, part, files)
    digest = _digest(findings, found, lambda read: progress(_READING * read / max(1, size_bytes)))
    if not file_count:
        findings.refuse("The folder contains no files: add the data, then check again.")
    elif not findings.problems:
        _look_into(findings, found, kind, lambda read: progress(_READING + (1 - _READING) * read / max(1, size_bytes)))
    return Inspection(findings, file_count, size_bytes, digest)


def _note_what_is_left_out(findings: Findings, part: Part, files: Files) -> None:
    if files.left_out:
        findings.warn(f"{file_word(files.left_out, 'link')} or devices were skipped: only regular files are checked.")
    for name, why in files.unreadable:
        findings.refuse(_unreadable(_full(part, name), why))
    if not files.regular and part.role:
        findings.refuse(f"The {part.role} folder contains no files: add the data, or omit the folder.")


def _digest(findings: Findings, found: list[tuple[Part, Files]], tick: Tick) -> str:
    digest, read = hashlib.sha256(), 0
    for part, files in found:
        for name, file, size in files.regular:
            digest.update(f"{_full(part, name)}\0{size}\0".encode("utf-8", "surrogateescape"))
            try:
                with file.open("rb") as stream:
                    while chunk := stream.read(_CHUNK):
                        digest.update(chunk)
                        read += len(chunk)
                        tick(read)
            except OSError as error:
                findings.refuse(_unreadable(_full(part, name), error.strerror or str(error)))
    return digest.hexdigest()


def _look_into(findings: Findings, found: list[tuple[Part, Files]], kind: str, tick: Tick) -> None:
    # A part without a role whose files have roles in their names (train.csv, test.csv) is split.
    split = [piece for part, files in found for piece in _pieces(part, files)]
    findings.format = _format(kind, [name for piece in split for name in piece.files])
    read = 0
    for piece in split:
        findings.parts.append(piece.findings)
        reader = _READERS.get(findings.format)
        if reader is not None:
            reader(findings, piece, lambda more, before=read: tick(before + more))  # type: ignore[misc]
        read += piece.findings.size_bytes
        tick(read)
    _judge(findings, kind)


def _pieces(part: Part, files: Files) -> list[Piece]:
    roles = {name: part.role or role_of_file(name) for name, _, _ in files.regular}
    if "training" not in roles.values():
        roles = dict.fromkeys(roles, part.role)
    beside = {_full(part, name): file for name, file, _ in files.regular}
    pieces = []
    for role in (*ROLES, ""):
        mine = [(name, file, size) for name, file, size in files.regular if roles[name] == role]
        if mine:
            counted = PartFindings(role, part.name, len(mine), sum(size for _, _, size in mine))
            pieces.append(Piece(counted, {_full(part, name): file for name, file, _ in mine}, beside))
    return pieces


def _format(kind: str, names: list[str]) -> str:
    suffixes = [Path(name).suffix.lower() for name in names]
    if kind != "csv":
        if any(cifar.is_batch(name) for name in names):
            return cifar.FORMAT
        if any(suffix in pictures.IMAGE_SUFFIXES for suffix in suffixes):
            return pictures.FORMAT
        if ".npz" in suffixes:
            return numpy_files.FORMAT
    if kind != "images" and any(suffix in csv_files.TABLE_SUFFIXES for suffix in suffixes):
        return csv_files.FORMAT
    return "files"


_READERS = {
    cifar.FORMAT: cifar.read_batches,
    numpy_files.FORMAT: numpy_files.read_arrays,
    pictures.FORMAT: pictures.read_pictures,
    csv_files.FORMAT: csv_files.read_tables,
}


def _judge(findings: Findings, kind: str) -> None:
    if kind == "any":
        # Kind Any requires nothing of the files: problems become warnings.
        findings.warnings = [*findings.warnings, *findings.problems]
        findings.problems = []
    labelled = any(part.classes or (part.items and kind == "csv") for part in findings.parts)
    if kind in _EXPECTED and not labelled and not findings.problems:
        findings.refuse(_EXPECTED[kind])
    _compare_classes(findings)


def _compare_classes(findings: Findings) -> None:
    training = next((part for part in findings.parts if part.role in {"training", ""} and part.classes), None)
    if training is None:
        return
    if findings.format != csv_files.FORMAT:
        for name, count in training.classes.items():
            if count == 1:
                findings.warn(
                    f"The class {name!r} has 1 image: none is left for training after splitting off validation data."
                )
        if len(training.classes) == 1:
            findings.warn("There is only one class: a classifier needs at least two.")
    for part in findings.parts:
        unknown = sorted(set(part.classes) - set(training.classes))
        if part is not training and unknown:
            findings.warn(f"{', '.join(unknown[:5])}: only in {part.role}, so no training data contains the class.")


def _unreadable(name: str, why: str) -> str:
    return f"{name} cannot be read ({why}): grant read access to the account that runs Tidepool."


def _full(part: Part, name: str) -> str:
    return f"{part.name}/{name}" if part.name else name
