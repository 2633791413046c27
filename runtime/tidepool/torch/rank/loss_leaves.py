"""Leaves of a loss's graph: the parameters that it depends on."""

import weakref
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch

__all__ = ["ForeignLeaves", "depends_on"]

#: Upper bound of the nodes of a graph that are looked at.
_MOST_NODES = 50_000


def depends_on(roots: Sequence[torch.Tensor], parameters: Collection[int]) -> bool:
    """Return whether a root depends on one of the parameters, which are given by `id`.

    True also where that cannot be seen: a function of the script's own may compute a part of the graph in its backward,
    as a reentrant checkpoint does.
    """
    for count, node in enumerate(_nodes(roots)):
        if count > _MOST_NODES or isinstance(node, torch.autograd.function.BackwardCFunction):
            return True
        variable = getattr(node, "variable", None)
        if variable is not None and id(variable) in parameters:
            return True
    return False


class ForeignLeaves:
    """Tensors that get a gradient from the losses and are none of the model's parameters, as far as graphs show."""

    def __init__(self, parameters: Collection[int]) -> None:
        self._parameters = parameters
        self._found: dict[int, weakref.ref[torch.Tensor]] = {}

    def note(self, roots: Sequence[torch.Tensor]) -> None:
        found = [variable for node in _nodes(roots) if (variable := getattr(node, "variable", None)) is not None]
        self._found |= {id(one): weakref.ref(one) for one in found if id(one) not in self._parameters}

    def has(self, parameters: Sequence[torch.Tensor]) -> bool:
        """Return whether one of the parameters was noted."""
        return any((known := self._found.get(id(one))) is not None and known() is one for one in parameters)


def _nodes(roots: Sequence[torch.Tensor]) -> Iterator[Any]:
    """Iterate over the nodes of a graph, depth first: the first leaf is found within few of them."""
    waiting = [root.grad_fn for root in roots if root.grad_fn is not None]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        yield node
        for each, _ in node.next_functions:
            if each is not None and each not in seen:
                seen.add(each)
                waiting.append(each)
