"""Addresses of the documents on the site, for sentences: pages make links of them, and clients complete them."""

import re

from django.utils.html import conditional_escape
from django.utils.safestring import SafeString, mark_safe

__all__ = ["help_address", "linked"]

_ADDRESS = re.compile(r"(?<![\w/])/help/(?:[\w-]+/)+(?:#[\w-]+)?")


def help_address(name: str, anchor: str = "") -> str:
    """Return the address of a document, such as `/help/jobs/`, or of a section of it."""
    return f"/help/{name}/#{anchor}" if anchor else f"/help/{name}/"


def linked(sentence: str) -> SafeString:
    """Return the sentence as HTML, with a link in place of each address of a document."""
    html = _ADDRESS.sub(r'<a href="\g<0>">\g<0></a>', conditional_escape(sentence))
    return mark_safe(html)  # noqa: S308  # escaped above
