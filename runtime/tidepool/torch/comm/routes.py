"""The plan of a hand-over: the routes by which the state reaches new ranks, and the pieces that take each of them.

Each holder sends a different share of the state, once, to one of the joiners, which passes every piece on as it
arrives, and so on through all of them. So no rank sends more than about one whole state, however many join, and all
have it after about the time that one takes.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["MOST_ROUTES", "PIECE_BYTES", "Piece", "Route", "fingerprint", "names_of", "routes_of", "shares"]

PIECE_BYTES = 2 * 2**20
#: A joiner has a thread and a connection for each route: beyond a few, more of them move nothing faster.
MOST_ROUTES = 8


@dataclass(frozen=True)
class Route:
    """The way of one share: from a holder through all joiners. Ranks of the group."""

    number: int
    holder: int
    joiners: tuple[int, ...]

    def after(self, rank: int) -> int | None:
        """Return the joiner to which this rank sends; None for the last one."""
        if rank == self.holder:
            return self.joiners[0]
        place = self.joiners.index(rank) + 1
        return self.joiners[place] if place < len(self.joiners) else None


def routes_of(holders: Sequence[int], joiners: Sequence[int]) -> list[Route]:
    """Return the routes, the same on all ranks. Each begins at another joiner, so that all pass on about as much."""
    turned = [(*joiners[turn:], *joiners[:turn]) for turn in range(len(joiners))]
    return [
        Route(number, holder, turned[number % len(turned)])
        for number, holder in enumerate(holders[:MOST_ROUTES] if joiners else [])
    ]


@dataclass(frozen=True)
class Piece:
    """Bytes [start, end) of the tensor of that number."""

    tensor: int
    start: int
    end: int


def shares(
    sizes: Sequence[int], is_shared: Sequence[bool], routes: int, piece_bytes: int = PIECE_BYTES
) -> list[list[Piece]]:
    """Return the pieces of each route, in order. sizes: of the tensors, in bytes. piece_bytes: most that a piece has.

    is_shared: whether all holders have that tensor alike; the others come from the holder of the first route.
    """
    found: list[list[Piece]] = [[] for _ in range(routes)]
    total, before = sum(size for size, shared in zip(sizes, is_shared, strict=True) if shared), 0
    for number, (size, shared) in enumerate(zip(sizes, is_shared, strict=True)):
        for start in range(0, size, piece_bytes):
            piece = Piece(number, start, min(size, start + piece_bytes))
            found[before * routes // total if shared else 0].append(piece)
            before += piece.end - piece.start if shared else 0
    return found


def names_of(structure: Any) -> dict[int, str]:
    """Return the place of each tensor in a structure, by its number. structure: as `flatten` returns it."""
    names: dict[int, str] = {}
    _name(structure, "", names)
    return names


def fingerprint(structure: Any, specs: Sequence[Any], is_shared: Sequence[bool]) -> str:
    """Return a digest of names, types and shapes of the shared tensors, by which holders are compared."""
    names = names_of(structure)
    shared = [[names[number], specs[number]] for number, alike in enumerate(is_shared) if alike]
    return hashlib.sha256(json.dumps(shared).encode()).hexdigest()


def _name(structure: Any, where: str, names: dict[int, str]) -> None:
    """Note the place of each tensor in the structure."""
    if not isinstance(structure, dict):
        return
    [(kind, inner)] = structure.items()
    if kind == "tensor":
        names[inner] = where
        return
    for key, item in inner if kind == "dict" else enumerate(inner):
        _name(item, f"{where}/{key}", names)
