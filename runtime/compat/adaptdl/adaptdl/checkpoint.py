"""State of a script's own that belongs to the training: saved with it, and loaded where it goes on.

On a cluster a state is carried along to replicas that come, and is in every checkpoint. Off one, it is saved when the
process is told to stop, or when the script says so.
"""

import io
from typing import BinaryIO

from tidepool.env import rank_context

from adaptdl import _standalone
from adaptdl._ledger import OUTSIDE
from adaptdl._training import training

__all__ = ["State", "load_state", "save_all_states", "save_state"]

_PREFIX = "state/"


class State:
    """Subclass it; `name` is its own among all states. Raises ValueError for one that exists."""

    def __init__(self, name: str) -> None:
        states = training().states
        if name in states:
            raise ValueError(f"there is a State {name!r} already: give each a name of its own")
        if not name or "/" in name or name.startswith("checkpoint-"):
            raise ValueError(f"a State is saved in a file of its name, and {name!r} can be none")
        self._name, self._kept = name, _Kept(self)
        states[name] = self._kept

    def save(self, fileobj: BinaryIO) -> None:
        """Write the state. Called on one replica."""

    def load(self, fileobj: BinaryIO) -> None:
        """Read what `save` has written."""

    def sync(self) -> None:
        """Make the state the same on all replicas. Called on all of them, before it is saved or handed on."""


class _Kept:
    """A State as the ledger carries it."""

    def __init__(self, state: State) -> None:
        self._state = state

    def pack(self) -> bytes:
        return _saved(self._state)

    def unpack(self, content: bytes) -> None:
        self._state.load(io.BytesIO(content))

    def prepare(self) -> None:
        self._state.sync()

    def updates(self) -> None:
        return None

    def add(self, updates: object) -> None:
        return None

    def clear_updates(self) -> None:
        return None

    def held(self) -> None:
        return None

    def hold(self, held: object) -> None:
        return None


def save_all_states() -> str | None:
    """Write a checkpoint: on a cluster at the next step, else now. Called by all replicas; returns its folder."""
    ours = training()
    if rank_context() is not None:
        if ours.training_loop is not None:
            ours.training_loop.wants_checkpoint = True
        return None
    if ours.script_loop is not None and not ours.script_loop.is_clean:
        raise RuntimeError("save_all_states() in the middle of a step: call it before the batch's backward pass")
    return ours.save()


def save_state(state: State, checkpoint_dir: str | None, sync: bool = True) -> None:
    """Write one state into a folder, on replica 0."""
    if sync:
        state.sync()
    if checkpoint_dir is not None and training().rank == 0:
        _standalone.write_state(checkpoint_dir, state._name, _saved(state))


def load_state(state: State) -> bool:
    """Load what was saved under its name. False: nothing was, as far as this process knows by now.

    A process that joins others on a cluster learns it when its training begins; `load` is called then.
    """
    if rank_context() is not None:
        return training().ledger.keep(_PREFIX + state._name, state._kept, OUTSIDE)
    folder = _standalone.newest()
    if folder is None or not (folder / state._name).is_file():
        return False
    with (folder / state._name).open("rb") as file:
        state.load(file)
    return True


def _saved(state: State) -> bytes:
    file = io.BytesIO()
    state.save(file)
    return file.getvalue()
