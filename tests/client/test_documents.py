"""Check that the program takes every command that documents and --help tell people to type."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from markdown_it import MarkdownIt
from tidepool.cli.app import cli

from tests.test_architecture import ROOT

DOCUMENTS = sorted((ROOT / "docs" / "user").glob("*.md"))
_COMMAND = re.compile(r"%?tidepool ((?:--profile work )?[a-z].*)")


def told(text: str) -> Iterator[str]:
    """Commands in inline code and shell examples, without what follows them in the same line."""
    for token in MarkdownIt().parse(text):
        lines = token.content.splitlines() if token.type == "fence" and token.info == "sh" else []
        inline = [child.content for child in token.children or () if child.type == "code_inline"]
        for line in [*lines, *inline]:
            if found := _COMMAND.search(line.partition("  #")[0]):
                yield re.split(r" (?:&&|\||>) |\)|$", found[1], maxsplit=1)[0]


def taken(command: click.Command, words: list[str]) -> None:
    """Raises UsageError where it does not have these options or that many arguments. Runs nothing."""
    ctx = click.Context(command)
    if not isinstance(command, click.Group):
        command.make_parser(ctx).parse_args(words)
        return
    name = next((word for word in words if not word.startswith("-") and word != "work"), None)
    if name is not None:
        inner = command.get_command(ctx, name)
        assert inner is not None, f"there is no command {name}"
        taken(inner, words[words.index(name) + 1 :])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_commands_of_documents_are_taken(document: Path) -> None:
    for line in told(document.read_text()):
        if line.split()[0] not in ("fetch",):
            taken(cli, shlex.split(line))


def test_there_are_some() -> None:
    assert sum(len(list(told(document.read_text()))) for document in DOCUMENTS) > 20
    with pytest.raises(click.UsageError):
        taken(cli, ["ps", "--no-such-option"])
