"""Search in the documents: sections that have every word, and the paragraph of each that fits best."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from core.markdown import Section
from webapp.help.documents import Document, topics_for

__all__ = ["Found", "Piece", "find_headings", "find_sections"]

#: Largest number of sections that a search shows.
MOST = 40
#: Longest part of a paragraph that a search shows, in characters.
LONGEST = 400


@dataclass(frozen=True)
class Piece:
    """A part of a paragraph."""

    text: str
    is_match: bool


@dataclass(frozen=True)
class Found:
    document: Document
    title: str
    address: str
    paragraph: tuple[Piece, ...]

    @property
    def note(self) -> str:
        """Title of the document; "" if that is the title of the section."""
        return "" if self.title == self.document.title else self.document.title


def find_sections(text: str, *, admin: bool) -> list[Found]:
    """Return the sections that contain every word: those with the words in the heading first, at most MOST."""
    words = _words(text)
    if not words:
        return []
    ranked = []
    for document, section, address in _all_sections(admin=admin):
        paragraphs = section.paragraphs or ("",)
        best = max(paragraphs, key=partial(_count, words=words))
        heading = f"{document.title} {section.title}" if section.level > 1 else section.title
        if _count(f"{heading} {best}", words) < len(words):
            continue
        rank = (-_count(section.title, words), -_count(best, words))
        ranked.append((rank, Found(document, section.title, address, _pieces(best, words))))
    return [found for _, found in sorted(ranked, key=lambda each: each[0])[:MOST]]


def find_headings(text: str, *, admin: bool, most: int) -> list[Found]:
    """Return the documents and sections whose heading contains every word, documents first."""
    words = _words(text)
    if not words:
        return []
    fitting = [
        (section.level, Found(document, section.title, address, ()))
        for document, section, address in _all_sections(admin=admin)
        if _count(section.title, words) == len(words)
    ]
    return [found for _, found in sorted(fitting, key=lambda each: each[0])[:most]]


def _all_sections(*, admin: bool) -> Iterator[tuple[Document, Section, str]]:
    for topic in topics_for(admin=admin):
        for document in topic.documents:
            for section in document.sections:
                yield document, section, f"{document.address}#{section.anchor}" if section.anchor else document.address


def _words(text: str) -> list[str]:
    return [word for word in text.casefold().split() if any(map(str.isalnum, word))]


def _count(text: str, words: Sequence[str]) -> int:
    folded = text.casefold()
    return sum(word in folded for word in words)


def _pieces(paragraph: str, words: Sequence[str]) -> tuple[Piece, ...]:
    """Split a paragraph into its matches and the text between; a long one is cut around the first match."""
    pattern = re.compile("|".join(map(re.escape, sorted(words, key=len, reverse=True))), re.IGNORECASE)
    first = pattern.search(paragraph)
    start = max(0, first.start() - LONGEST // 3) if first and len(paragraph) > LONGEST else 0
    shown = paragraph[start : start + LONGEST]
    # Cut between words.
    if start:
        shown = f"… {shown.partition(' ')[2]}"
    if start + LONGEST < len(paragraph):
        shown = f"{shown.rpartition(' ')[0]} …"
    pieces, end = [], 0
    for match in pattern.finditer(shown):
        pieces += [Piece(shown[end : match.start()], False), Piece(match[0], True)]
        end = match.end()
    return tuple(piece for piece in (*pieces, Piece(shown[end:], False)) if piece.text)
