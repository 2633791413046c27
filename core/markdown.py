"""Rendering of Markdown of users and of the documents: CommonMark with tables, limited to certain tags."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from urllib.parse import urlsplit

import nh3
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.token import Token

__all__ = ["Link", "Section", "document_title", "rendered", "rendered_document", "sections"]

_TAGS = {
    *("p", "br", "hr", "h3", "h4", "h5", "h6", "strong", "em", "s", "code", "pre", "blockquote"),
    *("ul", "ol", "li", "a", "table", "thead", "tbody", "tr", "th", "td"),
}
_ATTRIBUTES = {"a": {"href", "title"}, "ol": {"start"}}
#: Beyond these, what documents of ours have.
_DOCUMENT_TAGS = _TAGS | {"h2", "img"}
_DOCUMENT_ATTRIBUTES = _ATTRIBUTES | {f"h{level}": {"id"} for level in range(2, 7)} | {"img": {"src", "alt", "loading"}}
_SCHEMES = {"http", "https", "mailto"}
#: Levels by which headings of the text are lowered: the first becomes the page's third.
_DEEPER = 2
_DEEPEST = 6


def rendered(text: str, *, without_links_to: str = "") -> SafeString:
    """Return the text as HTML. HTML in it is shown as text, and a picture becomes a link, so none is fetched.

    without_links_to: host of a site; links to its pages are replaced by their words.
    """
    parser = _parser()
    tokens = parser.parse(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(int(token.tag[1:]) + _DEEPER, _DEEPEST)}"
    html = parser.renderer.render(tokens, parser.options, {})

    def kept(tag: str, attribute: str, value: str) -> str | None:
        return value if attribute != "href" or not without_links_to or _leads_away(value, without_links_to) else None

    clean = nh3.clean(
        html,
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        attribute_filter=kept,
        url_schemes=_SCHEMES,
        link_rel="nofollow noopener noreferrer",
    )
    return mark_safe(clean)  # noqa: S308  # cleaned above


@dataclass(frozen=True)
class Section:
    """A heading of a document, and the text up to the next one."""

    #: 1 for the document's title.
    level: int
    #: Fragment of its address, as GitHub makes it; "" for the title.
    anchor: str
    title: str
    #: Plain words of each paragraph, list item, table row and example.
    paragraphs: tuple[str, ...]


@dataclass(frozen=True)
class Link:
    address: str
    #: Words of a link that shows only the name of a file.
    title: str


def sections(text: str) -> list[Section]:
    """Return the sections of a document, in order."""
    found: list[tuple[Token, list[Token]]] = []
    for token in _document_parser().parse(text):
        if token.type == "heading_open":
            found.append((token, []))
        elif found:
            found[-1][1].append(token)
    return [
        Section(int(opening.tag[1:]), str(opening.attrGet("id") or ""), _plain(rest[0]), tuple(_paragraphs(rest[1:])))
        for opening, rest in found
    ]


def document_title(text: str) -> SafeString:
    """Return the words of a document's first heading as HTML."""
    return _cleaned(
        _document_parser().renderer.render(_document_parser().parse(text)[1:2], _document_parser().options, {})
    )


def rendered_document(text: str, link_of: Callable[[str], Link | None]) -> SafeString:
    """Return a document of ours as HTML, without its first heading; the other headings have ids.

    link_of: what an address in the document leads to; links to nothing are replaced by their words.
    """
    parser = _document_parser()
    tokens = parser.parse(text)[3:]
    for token in tokens:
        if token.children:
            token.children = list(_linked(token.children, link_of))
    return _cleaned(parser.renderer.render(tokens, parser.options, {}))


def _cleaned(html: str) -> SafeString:
    clean = nh3.clean(
        html, tags=_DOCUMENT_TAGS, attributes=_DOCUMENT_ATTRIBUTES, url_schemes=_SCHEMES, link_rel="noopener noreferrer"
    )
    return mark_safe(clean)  # noqa: S308  # cleaned above


def _linked(tokens: Sequence[Token], link_of: Callable[[str], Link | None]) -> Iterator[Token]:
    link: Link | None = None
    written = ""
    for token in tokens:
        if token.type == "link_open":
            written = str(token.attrGet("href") or "")
            link = link_of(written)
            if link is None:
                continue
            token.attrSet("href", link.address)
        elif token.type == "link_close" and link is None:
            continue
        elif token.type == "image":
            picture = link_of(str(token.attrGet("src") or ""))
            token.attrSet("src", picture.address if picture else "")
            token.attrSet("loading", "lazy")
        elif link is not None and link.title and token.content == written:
            token.content = link.title
        yield token


def _paragraphs(tokens: Iterable[Token]) -> Iterator[str]:
    row: list[str] | None = None
    for token in tokens:
        if token.type == "tr_open":
            row = []
        elif token.type == "tr_close" and row is not None:
            yield " · ".join(filter(None, row))
            row = None
        elif token.type in ("fence", "code_block"):
            yield token.content.strip()
        elif token.type == "inline" and row is not None:
            row.append(_plain(token))
        elif token.type == "inline":
            yield _plain(token)


def _plain(token: Token) -> str:
    """Return the words of an inline token, without marks and addresses."""
    breaks = ("softbreak", "hardbreak")
    return "".join(" " if each.type in breaks else each.content for each in token.children or ()).strip()


def _give_anchors(tokens: list[Token]) -> None:
    """Give each heading but the first an id: as on GitHub, the second of the same words ends in -1."""
    seen: dict[str, int] = {}
    for opening, inline in pairwise(tokens):
        if opening.type == "heading_open" and opening.tag != "h1":
            anchor = re.sub(r"[^\w\- ]", "", _plain(inline).lower()).replace(" ", "-")
            seen[anchor] = number = seen.get(anchor, -1) + 1
            opening.attrSet("id", f"{anchor}-{number}" if number else anchor)


def _leads_away(address: str, host: str) -> bool:
    """Return whether the address leads to another host; False for addresses that browsers may read differently."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    return parts.scheme == "mailto" or (
        bool(parts.scheme and parts.netloc) and parts.netloc.casefold() != host.casefold()
    )


@cache
def _parser() -> MarkdownIt:
    # With `html` off, tags are text. Without the rule `image`, `![alt](address)` is "!" and a link.
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("image")


@cache
def _document_parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.core.ruler.push("anchors", lambda state: _give_anchors(state.tokens))
    return parser
