"""Names that the Train form proposes for clones."""

import re
from collections.abc import Collection
from itertools import count

__all__ = ["clone_name"]

#: Time at the end of a proposed name, as the Train form and the command line write it.
_STAMP = re.compile(r"-\d{8}-?\d{6}$")


def clone_name(name: str, taken: Collection[str], *, stamp: str, longest: int) -> str:
    """Return a name for a clone of the training `name`, so that lists and charts tell the two apart.

    A time at the end of the name becomes `stamp`; any other name gets the first number that is free among `taken`.
    """
    if _STAMP.search(name):
        return _STAMP.sub(f"-{stamp}", name)
    numbered = (f"{name}-{number}" for number in count(2))
    proposed = next(each for each in numbered if each not in taken)
    return proposed if len(proposed) <= longest else name
