"""Finding living objects by their class, in a process with several threads.

A list of all objects (`gc.get_objects()`) also refers to tuples that other threads are filling, as in `tuple(x for x in
items)`. CPython raises SystemError in such a thread, because nobody but the maker may refer to an unfinished tuple. So
no other thread may run while such a list exists, and here none does.
"""

import gc
from itertools import chain, starmap
from typing import Any

__all__ = ["instances_of"]


def instances_of(*kinds: type) -> list[Any]:
    """Return the living instances of these classes, which are written in Python, and of derived classes."""
    own = [kind for kind in _living_classes() if issubclass(kind, kinds)]
    # An instance refers to its class. Some objects claim a class by `__class__` that is not theirs.
    return [each for each in gc.get_referrers(*own) if issubclass(type(each), kinds)] if own else []


def _living_classes() -> set[type]:
    """Return the classes of all objects. The list of these lives and dies in one call of C code: no thread switches."""
    return set(map(type, chain.from_iterable(starmap(gc.get_objects, [()]))))
