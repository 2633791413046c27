"""Rendering of users' Markdown: CommonMark with tables, limited to the tags and addresses in this module."""

from functools import cache
from urllib.parse import urlsplit

import nh3
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt

__all__ = ["rendered"]

_TAGS = {
    *("p", "br", "hr", "h3", "h4", "h5", "h6", "strong", "em", "s", "code", "pre", "blockquote"),
    *("ul", "ol", "li", "a", "table", "thead", "tbody", "tr", "th", "td"),
}
_ATTRIBUTES = {"a": {"href", "title"}, "ol": {"start"}}
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
