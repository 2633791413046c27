"""The one order in which exactness `bitwise` adds: a binary tree over the virtual ranks, whoever computes them.

Floating-point sums depend on their order. Here the order follows from the number of leaves alone: a node is a block of
2**height leaves that begins at a multiple of its width, and its value is that of its left half plus that of its right
half (the left half alone, where the right one lies beyond the last leaf). A rank that owns a contiguous span of leaves
can add up the whole nodes inside it by itself; what is left to add when all ranks have met is the rest of the tree.

Nothing here knows about tensors: these functions say what to add, the reducer adds.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Node", "additions", "merges", "nodes"]


@dataclass(frozen=True, order=True)
class Node:
    """The leaves from `first` up to `first + 2**height`."""

    first: int
    height: int


def merges(leaf: int, first: int) -> int:
    """How many nodes that end before `leaf` become one with it, in a span that begins at the leaf `first`.

    The nodes are the newest of those that the span's earlier leaves have left, newest first.
    """
    count, start = 0, leaf
    while start >> count & 1 and start - (1 << count) >= first:
        start -= 1 << count
        count += 1
    return count


def nodes(first: int, last: int) -> list[Node]:
    """The fewest nodes that make up the leaves [first, last), in order: what `merges` leaves of such a span."""
    found: list[Node] = []
    for leaf in range(first, last):
        count = merges(leaf, first)
        start = found[len(found) - count].first if count else leaf
        del found[len(found) - count :]
        found.append(Node(start, count))
    return found


def additions(parts: list[Node]) -> list[tuple[int, int]]:
    """How the nodes `parts`, in order and without gaps, become the root: `value[right] += value[left]`, one by one.

    The root's value is the last one's in the end. Which of the two numbers is the left one does not matter to a sum.
    """
    order: list[tuple[int, int]] = []
    waiting: list[tuple[Node, int]] = []
    for place, part in enumerate(parts):
        node = part
        while waiting and waiting[-1][0].height == node.height and node.first >> node.height & 1:
            left, before = waiting.pop()
            order.append((before, place))
            node = Node(left.first, node.height + 1)
        waiting.append((node, place))
    while len(waiting) > 1:  # the last leaf is not the last one of its block: halves without a neighbour move up
        _, place = waiting.pop()
        left, before = waiting.pop()
        order.append((before, place))
        waiting.append((left, place))
    return order
