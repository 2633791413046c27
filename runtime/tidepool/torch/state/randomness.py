"""The global random number generators that scripts draw from: Python's, NumPy's and torch's.

Numbers drawn in a step must depend on the step alone; numbers drawn outside of steps must continue their sequence, also
on a rank that joins. So steps draw from generators set aside for them (`aside`), seeded by place; the others'
states belong to the training's state. Generators that a script makes itself are its own affair.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import torch
from numpy.random.mtrand import get_bit_generator, set_bit_generator

__all__ = ["Generators", "mixed_seed", "seed_all", "seed_reading", "seed_step"]


def seed_all(seed: int) -> None:
    """Seed torch, Python and NumPy, 80 times faster than `torch.manual_seed`: it runs several times in each step."""
    random.seed(seed)
    numpy.random.seed(seed & 0xFFFFFFFF)
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)


def seed_step(seed: int, step: int, part: int) -> None:
    """Random numbers drawn in a step (dropout, augmentation) depend on the step and the part, nothing else."""
    seed_all(mixed_seed(seed, step, part + 0x100))


def seed_reading(seed: int, step: int, first: int) -> None:
    """Seed what a dataset draws while a micro-batch is read; `first`: its first sample's place in the step."""
    seed_all(mixed_seed(seed, step, first, 0xDA7A))


def mixed_seed(*parts: int) -> int:
    """Distinct 63-bit seeds for distinct parts (the 64-bit finalizer of MurmurHash3, applied part by part)."""
    mixed = 0
    for part in parts:
        mixed = (mixed ^ part) & 0xFFFFFFFFFFFFFFFF
        for multiplier in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
            mixed = ((mixed ^ (mixed >> 33)) * multiplier) & 0xFFFFFFFFFFFFFFFF
        mixed = (mixed ^ (mixed >> 33)) + 0x9E3779B97F4A7C15
    return mixed & 0x7FFFFFFFFFFFFFFF


class Generators:
    """The generators outside of steps. `device`: the model's; its generator is one of them.

    A rank that joins runs its script's epoch from the top, as the others did when the epoch began: there it draws what
    they drew, and in `session.steps` it goes on where they are.
    """

    def __init__(self, device: torch.device) -> None:
        self._cuda = device if device.type == "cuda" else None
        #: NumPy generators for `aside`, one for each level.
        self._spare: list[numpy.random.MT19937] = []
        #: When the epoch under way began; None between epochs.
        self._at_epoch: dict[str, Any] | None = None
        #: Generators' states of the other ranks, to continue with once this rank has caught up.
        self._to_reach: dict[str, Any] | None = None

    def begin_epoch(self) -> None:
        if self._to_reach is None:
            self._at_epoch = self._states()
        elif self._at_epoch is not None:
            self._set_states(self._at_epoch)
        else:
            self.begin_steps()
            self._at_epoch = self._states()

    def begin_steps(self) -> None:
        if self._to_reach is not None:
            self._set_states(self._to_reach)
            self._to_reach = None

    def end_epoch(self) -> None:
        self._at_epoch = None

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Draw from separate generators in the block, leaving the global ones unchanged."""
        kept = self._torch_states(), random.getstate(), get_bit_generator()
        instead = self._spare.pop() if self._spare else numpy.random.MT19937(0)
        set_bit_generator(instead)  # exchanged, since NumPy takes 50 us to get and set a state
        try:
            yield
        finally:
            self._spare.append(instead)
            self._set_torch_states(kept[0])
            random.setstate(kept[1])
            set_bit_generator(kept[2])

    def state_dict(self) -> dict[str, Any]:
        return {"at_epoch": self._at_epoch, "now": self._to_reach or self._states()}

    def load_state_dict(self, states: dict[str, Any]) -> None:
        self._at_epoch, self._to_reach = states["at_epoch"], states["now"]

    def _states(self) -> dict[str, Any]:
        version, words, gauss = random.getstate()
        return {
            "torch": self._torch_states(),
            "python": {"version": version, "words": torch.tensor(words), "gauss": gauss},
            "numpy": _as_tensors(get_bit_generator().state),
        }

    def _set_states(self, states: dict[str, Any]) -> None:
        self._set_torch_states(states["torch"])
        python = states["python"]
        random.setstate((python["version"], tuple(python["words"].tolist()), python["gauss"]))
        kind = getattr(numpy.random, states["numpy"]["bit_generator"])
        generator = kind()
        generator.state = _as_arrays(states["numpy"])
        set_bit_generator(generator)

    def _torch_states(self) -> list[torch.Tensor]:
        states = [torch.get_rng_state()]
        return states if self._cuda is None else [*states, torch.cuda.get_rng_state(self._cuda)]

    def _set_torch_states(self, states: list[torch.Tensor]) -> None:
        torch.set_rng_state(states[0].cpu())
        if self._cuda is not None and len(states) > 1:  # a checkpoint of a CPU has one state only
            torch.cuda.set_rng_state(states[1].cpu(), self._cuda)


def _as_tensors(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _as_tensors(item) for key, item in value.items()}
    if isinstance(value, numpy.ndarray):
        return torch.from_numpy(value.view(numpy.uint8).copy())
    return int(value) if isinstance(value, numpy.integer) else value


def _as_arrays(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _as_arrays(item, key) for key, item in value.items()}
    if isinstance(value, torch.Tensor):
        return value.cpu().numpy().view(numpy.uint32 if name == "key" else numpy.uint64)
    return value
