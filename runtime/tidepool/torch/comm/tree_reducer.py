"""Exactness `bitwise`: sums in one fixed order, so that the result is the same bits on any number of ranks.

Floating-point sums depend on their order. Here the order follows from the number of virtual ranks alone: it is a binary
tree over them. A node is a block of 2**height leaves that begins at a multiple of its width, and its value is that of
its left half plus that of its right half (the left half alone, where the right one lies beyond the last leaf).

Each virtual rank's gradients, control block and buffers are a leaf, empty ones zeros. A rank owns a contiguous span of
leaves, adds up the whole nodes inside it as it goes along, and keeps at most log2 of their number. Then each rank gets
its slice of everybody's nodes, adds the rest of the tree there, and hands the finished slice to all: for spans of equal
powers of two that is the traffic of a ring all-reduce. Two ranks send each other all that they have, which is as much,
and both add the rest: one round instead of two.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from tidepool.env import ask_for_reproducible_kernels
from tidepool.torch.comm.process_group import CommunicationError, Group
from tidepool.torch.comm.reducer import CONTROL_SIZE, Bucket, Reducer, SumReducer
from tidepool.torch.data import share
from tidepool.torch.state.buffers import Buffers
from tidepool.torch.state.update import optimized

__all__ = ["Node", "TreeReducer", "additions", "merges", "nodes", "reducer_of"]


def reducer_of(
    model: torch.nn.Module,
    optimizers: dict[str, torch.optim.Optimizer],
    buffers: Buffers,
    virtual_ranks: int | None,
    control_size: int = CONTROL_SIZE,
) -> Reducer:
    """Return the reducer that sums gradients in exactness `sum`, or, with `virtual_ranks`, in `bitwise`.

    The latter, and that of a batch that adapts, have a place for each parameter, also for those that are never thawed.
    """
    parameters, thawing = list(model.parameters()), optimized(optimizers)
    if virtual_ranks is not None or control_size != CONTROL_SIZE:
        thawing = parameters
    if virtual_ranks is None:
        return SumReducer(parameters, thawing, buffers=buffers.size, control_size=control_size)
    _be_deterministic()
    return TreeReducer(parameters, thawing, virtual_ranks=virtual_ranks, buffers=buffers.size)


def _be_deterministic() -> None:
    """Have this process compute the same bits from the same numbers, or raise for an operation that cannot.

    One thread, because sums that several share depend on how many they are. What remains: the same kind of device and
    the same build of torch.
    """
    ask_for_reproducible_kernels()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    # Else each operation fills its fresh memory first, so that to read it by mistake would be reproducible.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


@dataclass(frozen=True, order=True)
class Node:
    """The leaves from `first` up to `first + 2**height`."""

    first: int
    height: int


def merges(leaf: int, first: int) -> int:
    """Number of nodes before `leaf` that become one with it, in a span that begins at the leaf `first`.

    The nodes are the newest of those that the span's earlier leaves have left, newest first.
    """
    count, start = 0, leaf
    while start >> count & 1 and start - (1 << count) >= first:
        start -= 1 << count
        count += 1
    return count


def nodes(first: int, last: int) -> list[Node]:
    """Return the fewest nodes that make up the leaves [first, last), in order: what `merges` leaves of such a span."""
    found: list[Node] = []
    for leaf in range(first, last):
        count = merges(leaf, first)
        start = found[len(found) - count].first if count else leaf
        del found[len(found) - count :]
        found.append(Node(start, count))
    return found


def additions(parts: list[Node]) -> list[tuple[int, int]]:
    """Additions that make the root of the nodes `parts`, which have no gaps: `value[right] += value[left]`, one by one.

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


class TreeReducer(Reducer):
    """Exactness `bitwise` with `virtual_ranks` leaves. A part of a step is the share of one virtual rank."""

    def __init__(
        self,
        parameters: Iterable[torch.nn.Parameter],
        thawing: Iterable[torch.nn.Parameter] = (),
        *,
        virtual_ranks: int,
        buffers: int = 0,
    ) -> None:
        # Slices are of equal length: room for the elements by which the last one may be longer than what is left.
        super().__init__(parameters, thawing, buffers=buffers, spare=virtual_ranks - 1)
        self._virtual_ranks = virtual_ranks
        self._trees = {id(bucket): _Tree(bucket.wire.view(-1), virtual_ranks - 1) for bucket in self._buckets}
        #: Spans of leaves by rank; empty for a rank that does not compute.
        self._spans: list[tuple[int, int]] = []
        self._leaf = self._first = self._last = 0

    def begin(self, group: Group, sharing: list[int]) -> None:
        if group.size > self._virtual_ranks:
            raise RuntimeError(f"{group.size} ranks cannot share {self._virtual_ranks} virtual ranks")
        super().begin(group, sharing)
        self._spans = [
            share(0, self._virtual_ranks, sharing.index(rank), len(sharing)) if rank in sharing else (0, 0)
            for rank in range(group.size)
        ]
        self._first, self._last = self._spans[group.rank]
        self._leaf = self._first
        for tree in self._trees.values():
            tree.clear()

    def end_part(self) -> None:
        for tree in self._trees.values():
            tree.add_leaf(merges(self._leaf, self._first))
        self._leaf += 1

    def _sum(self, bucket: Bucket, group: Group) -> Any:
        """The bucket holds this rank's last leaf: add up its nodes, and send each rank its slice of them."""
        tree = self._trees[id(bucket)]
        if self._first < self._last:
            tree.add_last_leaf(merges(self._last - 1, self._first))
        if group.size == 1:
            tree.finish(nodes(self._first, self._last))
            return None
        return tree.send(group, [len(nodes(*span)) for span in self._spans])

    def _complete(self, buckets: list[Bucket]) -> None:
        super()._complete(buckets)
        assert self._group is not None
        if self._group.size == 1:
            return
        everybody = [nodes(*span) for span in self._spans]
        for bucket in buckets:
            if self._failure is None:
                try:
                    bucket.work = self._trees[id(bucket)].gather(self._group, everybody)
                except CommunicationError as error:
                    self._failure = error
        super()._complete(buckets)


class _Tree:
    """One bucket's: the nodes that this rank has added up so far, the newest in the bucket itself."""

    def __init__(self, leaf: torch.Tensor, spare: int) -> None:
        self._leaf = leaf
        self._length = leaf.numel() - spare
        self._nodes: list[torch.Tensor] = []
        self._free: list[torch.Tensor] = []
        self._received = leaf.new_empty(0)

    def clear(self) -> None:
        self._free += self._nodes
        self._nodes = []

    def add_leaf(self, merged: int) -> None:
        """Add the leaf to the nodes, and set it to zero. merged: number of the newest nodes that become one with it."""
        if merged:
            self._nodes[-1].add_(self._leaf)
        else:
            self._nodes.append(self._free.pop() if self._free else torch.empty_like(self._leaf))
            self._nodes[-1].copy_(self._leaf)
        for _ in range(merged - 1):
            node = self._nodes.pop()
            self._nodes[-1].add_(node)
            self._free.append(node)
        self._leaf.zero_()

    def add_last_leaf(self, merged: int) -> None:
        """Add the last leaf: its place takes the sum."""
        for _ in range(merged):
            node = self._nodes.pop()
            self._leaf.add_(node)
            self._free.append(node)

    def finish(self, found: list[Node]) -> None:
        """This rank has all leaves: the bucket takes the root."""
        values = [*self._nodes, self._leaf]
        for left, right in additions(found):
            values[right].add_(values[left])

    def send(self, group: Group, counts: list[int]) -> Any:
        """Begin to send each rank its slice of this rank's nodes. counts: of nodes, by rank."""
        mine, length = counts[group.rank], -(-self._length // group.size)
        if group.size == 2:
            return self._send_all(group, mine, counts[1 - group.rank])
        own = [node[: group.size * length].view(group.size, length) for node in [*self._nodes, self._leaf]]
        outgoing = torch.stack(own, 1) if mine > 1 else own[-1]
        if (sum(counts), length) != self._received.shape:
            self._received = self._leaf.new_empty(sum(counts), length)
        return group.exchange(
            self._received.view(-1),
            outgoing.reshape(-1) if mine else self._leaf[:0],
            [count * length for count in counts],
            [mine * length] * group.size,
        )

    def _send_all(self, group: Group, mine: int, theirs: int) -> Any:
        other = 1 - group.rank
        outgoing = torch.stack([*self._nodes, self._leaf]) if mine > 1 else self._leaf
        if (theirs, self._leaf.numel()) != self._received.shape:
            self._received = self._leaf.new_empty(theirs, self._leaf.numel())
        sizes = [0, 0], [0, 0]
        sizes[0][other], sizes[1][other] = self._received.numel(), mine * self._leaf.numel()
        return group.exchange(self._received.view(-1), outgoing.view(-1)[: sizes[1][other]], *sizes)

    def _finish_with(self, own: list[Node], theirs: list[Node]) -> None:
        """Both of two ranks have all nodes now: each adds the rest of the tree by itself."""
        rows = list(zip(theirs, self._received, strict=True))
        if own:
            rows += zip(own, [*self._nodes, self._leaf], strict=True)
        rows.sort(key=lambda row: row[0])
        for left, right in additions([node for node, _ in rows]):
            rows[right][1].add_(rows[left][1])
        if rows[-1][1] is not self._leaf:
            self._leaf.copy_(rows[-1][1])

    def gather(self, group: Group, found: list[list[Node]]) -> Any:
        """Finish the tree in this rank's slice, and begin to hand it to all. found: everybody's nodes, by rank."""
        if group.size == 2:
            return self._finish_with(found[group.rank], found[1 - group.rank])
        received = [node for nodes_of_rank in found for node in nodes_of_rank]
        rows = sorted(zip(received, self._received, strict=True), key=lambda row: row[0])
        for left, right in additions([node for node, _ in rows]):
            rows[right][1].add_(rows[left][1])
        root = rows[-1][1]
        return group.gather(self._leaf[: group.size * root.numel()], root)
