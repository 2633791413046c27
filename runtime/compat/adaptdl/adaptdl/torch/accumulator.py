"""`Accumulator`: a dict that every replica adds to, and that holds the sums over all of them when it is read."""

import copy
import pickle
from collections import Counter
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any

from adaptdl._training import training

__all__ = ["Accumulator"]


class Accumulator(MutableMapping[Any, Any]):
    """Add to it anywhere (`stats["loss"] += x`), and read it in `with stats.synchronized():`.

    Between such blocks it looks empty. In one it is a dict of the sums over all replicas, those of before included;
    what the block changes, it has to change alike on all.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        ours = training()
        if ours.place.source is not None:
            raise RuntimeError("an Accumulator cannot be made in a loop over an AdaptiveDataLoader")
        key = ours.place.key
        #: Values that blocks began with, by epoch, for a replica that replays them.
        self._history: dict[str, list[dict[Any, Any]]] = {}
        self._results: dict[Any, Any] = dict(*args, **kwargs)
        self._updates: dict[Any, Any] = {}
        self._blocks: Counter[str] = Counter()
        self._open: dict[Any, Any] | None = None
        ours.ledger.keep(f"accumulator/{key}/{ours.place.made[key]}", self, key)
        ours.place.made[key] += 1

    @contextmanager
    def synchronized(self) -> Iterator["Accumulator"]:
        """All replicas come to it at the same place of the script, and wait for each other."""
        if self._open is not None:
            yield self
            return
        self._open = self._summed()
        try:
            yield self
        finally:
            self._open = None

    def _summed(self) -> dict[Any, Any]:
        ours = training()
        ours.join_for_sums()
        key = ours.place.key
        self._history = {epoch: sums for epoch, sums in self._history.items() if epoch in ("", key)}
        history, number = self._history.setdefault(key, []), self._blocks[key]
        self._blocks[key] += 1
        if number < len(history):
            self._updates.clear()
            return history[number]
        for updates in ours.summed_up(lambda: self._updates, "Accumulator.synchronized()"):
            self.add(updates)
        self._updates = {}
        if ours.place.source is None:  # a loop's body is not replayed
            history.append(copy.deepcopy(self._results))
        else:
            self._blocks[key] -= 1
        return self._results

    # --- State that the training carries along ---

    def pack(self) -> bytes:
        return pickle.dumps((self._history, self._results))

    def unpack(self, content: bytes) -> None:
        self._history, self._results = pickle.loads(content)  # noqa: S301 - of this training's own processes
        self._updates = {}

    def prepare(self) -> None:
        """Nothing is to do before its sums are carried along."""

    def updates(self) -> dict[Any, Any]:
        return self._updates

    def add(self, updates: Mapping[Any, Any]) -> None:
        for key, value in updates.items():
            self._results[key] = self._results[key] + value if key in self._results else value

    def clear_updates(self) -> None:
        self._updates = {}

    def held(self) -> tuple[dict[Any, Any], dict[Any, Any]] | None:
        return (self._results, self._updates) if self._results or self._updates else None

    def hold(self, held: tuple[dict[Any, Any], dict[Any, Any]] | None) -> None:
        self._results, self._updates = held or ({}, {})

    # --- Methods of a dict ---

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Add the values, unlike a dict's `update`."""
        for key, value in dict(*args, **kwargs).items():
            self[key] += value

    def subtract(self, *args: Any, **kwargs: Any) -> None:
        for key, value in dict(*args, **kwargs).items():
            self[key] -= value

    def __iadd__(self, other: Any) -> "Accumulator":
        self.update(other)
        return self

    def __isub__(self, other: Any) -> "Accumulator":
        self.subtract(other)
        return self

    def __getitem__(self, key: Any) -> Any:
        return _Update(self, key) if self._open is None else self._open[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        if self._open is not None:
            self._open[key] = value
            return
        if not isinstance(value, _Update):
            raise TypeError(
                f"accumulator[{key!r}] = {type(value).__name__}: outside of synchronized() add to it, by += or -="
            )
        if value.accumulator is not self or value.key != key:
            raise ValueError(f"accumulator[{key!r}] gets what was read of another accumulator or key")
        for amount in [] if training().stands_in else value.amounts:
            self._updates[key] = self._updates[key] + amount if key in self._updates else amount

    def __delitem__(self, key: Any) -> None:
        del self._readable()[key]

    def __contains__(self, key: Any) -> bool:
        return key in self._readable()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._readable())

    def __len__(self) -> int:
        return len(self._readable())

    def __repr__(self) -> str:
        return repr(self._readable())

    def _readable(self) -> dict[Any, Any]:
        return {} if self._open is None else self._open


class _Update:
    """The value of `accumulator[key]` while it can only be added to."""

    def __init__(self, accumulator: Accumulator, key: Any) -> None:
        self.accumulator, self.key = accumulator, key
        self.amounts: list[Any] = []

    def __add__(self, amount: Any) -> "_Update":
        if isinstance(amount, _Update):
            raise TypeError("an accumulator's values can be read in synchronized() only: add numbers to it")
        self.amounts.append(amount)
        return self

    def __sub__(self, amount: Any) -> "_Update":
        return self + (amount if isinstance(amount, _Update) else -amount)
