"""HTML of pages as tests compare it: templates are indented, and most blanks between elements show nothing."""

import re

from django.http import HttpResponse

__all__ = ["html_of", "squeezed"]


def html_of(response: HttpResponse) -> str:
    """Return the HTML of a page without the blanks that stem from the layout of its templates."""
    return squeezed(response.content.decode())


def squeezed(html: str) -> str:
    """Return the HTML with single blanks, and with none between two tags or at the edges of an element.

    Text whose blanks count stays as it is: `<pre>` and `<textarea>`.
    """
    parts = re.split(r"(<(?:pre|textarea)\b.*?</(?:pre|textarea)>)", html, flags=re.DOTALL)
    return "".join(part if number % 2 else _squeezed(part) for number, part in enumerate(parts))


def _squeezed(html: str) -> str:
    html = re.sub(r"\s+", " ", html)
    html = re.sub(r" (/?>)", r"\1", html)
    html = re.sub(r"(<[a-z][^<>]*>) ", r"\1", html)
    html = re.sub(r" (?=</)", "", html)
    return re.sub(r"(?<=>) (?=<)", "", html)
