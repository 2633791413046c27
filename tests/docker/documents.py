"""The commands of the operator's pages."""

import re

from tests.docker.compose import ROOT

__all__ = ["commands"]


def commands(page: str, heading: str) -> str:
    """The first block of commands below a heading."""
    text = (ROOT / "docs/operator" / page).read_text()
    after = text.split(f"\n### {heading}\n", 1)[1]
    block = re.search(r"^```sh\n(.*?)^```$", after, re.MULTILINE | re.DOTALL)
    assert block is not None
    assert "\n### " not in after[: block.start()], "the heading has no commands"
    return block[1]
