"""Check that Markdown of users becomes HTML that can do no harm."""

import re

import pytest

from core.markdown import rendered


@pytest.mark.parametrize(
    ("text", "html"),
    [
        (
            "# Title\n\n*a* **b** ~~c~~ `d`",
            "<h3>Title</h3>\n<p><em>a</em> <strong>b</strong> <s>c</s> <code>d</code></p>\n",
        ),
        ("3. one\n4. two", '<ol start="3">\n<li>one</li>\n<li>two</li>\n</ol>\n'),
        ("###### deep", "<h6>deep</h6>\n"),
        ("[job](/jobs/7/)", '<p><a href="/jobs/7/" rel="nofollow noopener noreferrer">job</a></p>\n'),
        ("a < b & c", "<p>a &lt; b &amp; c</p>\n"),
    ],
)
def test_markdown_is_rendered(text: str, html: str) -> None:
    assert rendered(text) == html


def test_tables_are_rendered() -> None:
    assert "<th>lr</th>" in rendered("| lr | loss |\n|---:|---|\n| 0.1 | 0.5 |")


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "[x](javascript:alert(1))",
        "[x](JaVaScRiPt&#58;alert(1))",
        "[x](data:text/html;base64,PHNjcmlwdD4=)",
        "![x](https://example.org/pixel.png)",
        "![x][y]\n\n[y]: https://example.org/pixel.png",
        '<https://example.org/" onclick=alert(1)>',
        "[x](https://example.org 'a\" onmouseover=\"alert(1)')",
        '<a href="vbscript:x">y</a>',
        "<svg/onload=alert(1)>",
        "<style>*{display:none}</style>",
        "```html\n<iframe src=//example.org></iframe>\n```",
        "<form action=/jobs/1/cancel/><button>x</button></form>",
    ],
)
def test_nothing_in_it_runs_or_is_fetched(text: str) -> None:
    html = rendered(text)
    tags = re.findall(r"<(\w+)([^>]*)>", html)
    assert {name for name, _ in tags} <= {"p", "a", "pre", "code"}
    for _, attributes in tags:
        assert not re.search(r"\bon\w+=\"?alert|style=|src=", re.sub(r'"[^"]*"', '""', attributes))
        assert not re.search(r'href="(?!https?:|mailto:|/)', attributes)
