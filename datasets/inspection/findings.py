"""The result of an inspection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["MAX_SENTENCES", "Column", "Findings", "Head", "Part", "PartFindings", "Progress", "Sample", "file_word"]

#: As many problems are named as people would look at.
MAX_SENTENCES = 20
#: Said for each piece of work done: a fraction of the whole between 0 and 1. It may raise to give the work up.
Progress = Callable[[float], None]


@dataclass(frozen=True)
class Part:
    """One of the folders that a dataset consists of."""

    #: "training", "validation", "testing", or "" where one folder holds all.
    role: str
    folder: Path
    #: How its folder is called in messages and previews; "" for the dataset itself.
    name: str = ""


@dataclass
class PartFindings:
    role: str
    folder: str
    files: int = 0
    size_bytes: int = 0
    #: Images or rows.
    items: int = 0
    classes: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Sample:
    """One image: a file of the dataset, or a PNG that was made from its numbers (base64)."""

    label: str
    role: str
    file: str = ""
    png: str = ""


@dataclass
class Column:
    name: str
    is_number: bool
    missing: int = 0
    #: Numbers only.
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
    #: Sentences: why the dataset cannot be used.
    problems: list[str] = field(default_factory=list)
    #: Sentences: what somebody should know who uses it.
    warnings: list[str] = field(default_factory=list)
    columns: list[Column] = field(default_factory=list)
    head: Head | None = None
    samples: list[Sample] = field(default_factory=list)

    def refuse(self, sentence: str) -> None:
        """One more problem. After `MAX_SENTENCES` it only says that there are more."""
        if len(self.problems) < MAX_SENTENCES:
            self.problems.append(sentence)
        elif len(self.problems) == MAX_SENTENCES:
            self.problems.append("There are more problems of this kind: correct these first.")

    def warn(self, sentence: str) -> None:
        if len(self.warnings) < MAX_SENTENCES and sentence not in self.warnings:
            self.warnings.append(sentence)

    def warn_of_others(self, names: list[str]) -> None:
        if names:
            self.warn(f"{file_word(len(names))} of another kind, such as {names[0]}, left out of the counts.")

    def summary(self) -> dict[str, Any]:
        """As JSON, without samples and problems, which are kept apart."""
        values = asdict(self)
        for name in ("samples", "problems"):
            del values[name]
        return values


def file_word(count: int, what: str = "file") -> str:
    """1 file, 2 files."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
