"""Fenced examples of the documents, each with an id that tests name it by."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

from tests.test_architecture import ROOT

__all__ = ["Example", "all_examples", "example"]


@dataclass(frozen=True)
class Example:
    #: Path, heading, and number below that heading, such as `docs/user/cli.md#Train.1`.
    id: str
    language: str
    text: str


def all_examples() -> list[Example]:
    """Return the examples of README.md and docs/ in a language; drawings and quoted output have none."""
    files = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [each for file in files for each in _examples_of(file)]


def example(name: str) -> Example:
    [found] = [each for each in all_examples() if each.id == name]
    return found


def _examples_of(file: Path) -> Iterator[Example]:
    heading, number, is_heading = "", 0, False
    for token in MarkdownIt().parse(file.read_text()):
        if is_heading:
            heading, number = re.sub(r"[`*]", "", token.content), 0
        is_heading = token.type == "heading_open"
        if token.type == "fence" and token.info:
            number += 1
            yield Example(f"{file.relative_to(ROOT)}#{heading}.{number}", token.info, token.content)
