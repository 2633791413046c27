"""Texts that users read: one word for one thing, and one style of sizes. See also tests/jobs/test_messages.py."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_architecture import ROOT

#: Pattern of what a text must not contain -> what to write instead.
AVOIDED = {
    r"\bwithdr[ae]w": "revoke (a token, an invitation, a link)",
    r"\blog-ins?\b|\blog on\b": "login; to log in",
    r"\bpictures?\b": "image",
    r"\btick (?:it|the|them)\b": "select",
    r"\bmake (?:one|another(?! user)|a report|a model|public link|report)\b": "create",
    r"\bthe page (?:Checkpoints|Hosts|Train|Usage)\b": "the Hosts page",
    r"\bany more\b": "no longer",
    r"\b(?:is|are|was|were) \w+ already\b|\w exists already\b": "is already removed",
    r"\bjobs? \{\}": "training",
    r"\b(?:most|than|only) \{\} bytes\b": "tidepool.units.size_words",
    r"\d ?[KMG]B\b": "KiB, MiB, GiB",
    r"\w\.\.(?:\s|$)": "one full stop",
}
#: Clients of WMLA read its words; the Python client has jobs; a rank's messages are in its log.
OTHER_READERS = ("benchmarks/", "docs/", "examples/", "runtime/", "scripts/", "tests/", "wmla/")
PYTHON = [
    path
    for path in sorted(ROOT.rglob("*.py"))
    if (name := path.relative_to(ROOT).as_posix()).startswith("runtime/tidepool/cli/")
    or not (name.startswith((".", *OTHER_READERS)) or "/migrations/" in name)
]
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
SCRIPTS = [path for path in sorted((ROOT / "static/js").rglob("*.js")) if "vendor" not in path.parts]
_COMMENT = re.compile(r"\{#.*?#\}|\{% comment.*?endcomment %\}", re.DOTALL)
_SHOWN_ATTRIBUTE = re.compile(r'\b(?:title|placeholder|alt|yes|label|aria-label|data-label|data-key-words)="([^"]*)"')
_TAG = re.compile(r"</?[a-z!][^>]*>|\{%.*?%\}", re.DOTALL)
_LITERAL = re.compile(r'"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`')


def in_python(source: str) -> Iterator[str]:
    """Yield the texts of more than one word, with {} for each value; no docstrings, and no lines of the log."""
    left_out: set[int] = set()
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            left_out.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            left_out.update(map(id, node.values))
        elif isinstance(node, ast.Call) and ast.unparse(node.func).startswith("logger."):
            left_out.update(map(id, ast.walk(node)))
    for node in ast.walk(tree):
        if id(node) in left_out:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = re.sub(r"\{[^{}]*\}", "{}", node.value)
        elif isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        else:
            continue
        if " " in text.strip():
            yield text


def in_template(source: str) -> Iterator[str]:
    """Yield the text between tags, and the attributes that are shown or read aloud."""
    source = _COMMENT.sub("", source)
    yield from (match[1] for match in _SHOWN_ATTRIBUTE.finditer(source))
    yield re.sub(r"\s+", " ", _TAG.sub(" ", source))


def in_script(source: str) -> Iterator[str]:
    lines = (line for line in source.splitlines() if not line.lstrip().startswith(("//", "*", "import ")))
    for match in _LITERAL.finditer("\n".join(lines)):
        if " " in match[0]:
            yield re.sub(r"\$\{[^{}]*\}", "{}", match[0][1:-1])


def avoided_in(text: str) -> list[str]:
    """Return the words to avoid that the text contains, with what to write instead."""
    found = ((re.search(pattern, text, re.IGNORECASE), better) for pattern, better in AVOIDED.items())
    return [
        f"{match[0]!r} in {text[max(0, match.start() - 40) :][:90]!r}: {better}" for match, better in found if match
    ]


@pytest.mark.parametrize(
    ("texts_of", "paths"), [(in_python, PYTHON), (in_template, TEMPLATES), (in_script, SCRIPTS)], ids=lambda of: ""
)
def test_one_word_for_one_thing(texts_of, paths: list[Path]) -> None:
    assert len(paths) > 50
    found = [
        f"{path.relative_to(ROOT)}: {problem}"
        for path in paths
        for text in texts_of(path.read_text())
        for problem in avoided_in(text)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("texts", "count"),
    [
        (in_python('say(f"Job {number} is gone")'), 1),
        (in_python('def f():\n    """Withdraw it, log on."""\n    logger.info("job {} any more")'), 0),
        (in_python('raise Error(f"at most {limit} bytes, 3 MB..")'), 3),
        (in_template('{# Tick the box #}<b title="Withdraw this">Any\n more</b>'), 2),
        (in_template('<a class="picture" href="{% url \'picture\' %}">Image</a>'), 0),
        (in_script("// a picture\nsay(`The picture ${name}`);"), 1),
    ],
)
def test_it_finds_them_in_what_is_shown(texts: Iterator[str], count: int) -> None:
    assert sum(len(avoided_in(text)) for text in texts) == count
