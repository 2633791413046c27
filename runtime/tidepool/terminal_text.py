"""Characters that make a terminal do something, or show a text in another order than it has.

Scripts write names, errors and logs. What of them reaches a terminal or a page has none of these.
"""

import re
from typing import Final

__all__ = ["COMMANDS", "without_commands"]

#: Inside of a character class: control characters but line ends and tabs, those of 8 bits (C1), separators of lines,
#: and those that embed, override or isolate a direction of writing.
COMMANDS: Final = "\0-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069"
#: The same without colours, which a program sets itself, and without isolates, which sentences of the site contain.
_PRINTED: Final = re.compile("\x1b(?!\\[[0-9;]*m)|[\0-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u2028-\u202e]")


def without_commands(text: str) -> str:
    """Return a text for a terminal with a replacement character for each command to it but colours."""
    return _PRINTED.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))
