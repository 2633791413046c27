"""The commands of the operator's pages."""

import re

from tests.docker.compose import ROOT

__all__ = ["commands", "settings_of"]


def commands(page: str, heading: str, number: int = 1) -> str:
    """Return a block of commands below a heading, the first one unless told otherwise."""
    text = (ROOT / "docs/operator" / page).read_text()
    after = re.split(rf"^#+ {re.escape(heading)}\n", text, maxsplit=1, flags=re.MULTILINE)[1]
    section = re.split(r"^#+ ", after, maxsplit=1, flags=re.MULTILINE)[0]
    blocks = re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= number, f"the heading has {len(blocks)} blocks of commands"
    return str(blocks[number - 1])


def settings_of(page: str, heading: str) -> dict[str, str]:
    """Return the variables that the first block below a heading sets."""
    return dict(line.split("=", 1) for line in commands(page, heading).splitlines())
