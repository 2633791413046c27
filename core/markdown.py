"""Markdown of users as HTML: CommonMark with tables, and nothing but the tags and addresses that are listed here."""

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
#: The page's own headings are above those of the text: its first level is the page's third.
_DEEPER = 2
_DEEPEST = 6


def rendered(text: str, *, without_links_to: str = "") -> SafeString:
    """Render the text. HTML in it is shown as it was typed, and a picture as a link to it: none is fetched.

    without_links_to: the host of a site to whose pages no link leads; only their words stay.
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
    return mark_safe(clean)  # noqa: S308  # it was cleaned in the line above


def _leads_away(address: str, host: str) -> bool:
    """False for the site's own pages, and for what no browser would read as we do."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    return parts.scheme == "mailto" or (
        bool(parts.scheme and parts.netloc) and parts.netloc.casefold() != host.casefold()
    )


@cache
def _parser() -> MarkdownIt:
    # `html` off: what looks like a tag is text. Without the rule `image`, `![alt](address)` is "!" and a link.
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("image")
