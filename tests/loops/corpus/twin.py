"""Makes each script of the corpus two: the elastic loop, and with PLAIN set its plain twin.

A script calls `pace` at the end of the body of its loop, where the harness may hold all processes in one step, and
`finish` at its end, which writes the weights as this process has them.
"""

import json
import os
import time
from pathlib import Path

import torch
from tidepool.torch.data import epoch_order
from tidepool.torch.state.randomness import seed_step
from torch.utils.data import DataLoader, RandomSampler, Sampler

__all__ = [
    "PLAIN",
    "add_up",
    "epochs",
    "finish",
    "from_first",
    "is_first",
    "ordered",
    "pace",
    "prepare",
    "report",
    "tensors",
    "totals",
    "weigh",
]

PLAIN = "PLAIN" in os.environ
RESULTS, DATA = Path(os.environ["RESULT_DIR"]), Path(os.environ["DATA_DIR"])
#: Seed of the jobs of a lab.
_SEED = 7
#: Longest time in seconds that a process is held in a step, and that it waits for a resize to be announced.
_PATIENCE_SECONDS = 120.0
_bodies = 0
#: Bodies before each iteration over a DataLoader, in the plain twin.
_marks = []

torch.set_num_threads(1)
if PLAIN:

    def prepare(*objects, **_options):
        _note_passes()
        return objects[0] if len(objects) == 1 else objects

    def epochs(numbers):
        return numbers

    def is_first():
        return True

    def report(**_values):
        pass

    def weigh(_count):
        pass

    _sums = {}

    def add_up(**values):
        _sums.update({name: _sums.get(name, 0.0) + value for name, value in values.items()})

    def totals():
        found = dict(_sums)
        _sums.clear()
        return found

    def from_first(compute):
        return compute()
else:
    from tidepool.torch import add_up, epochs, from_first, is_first, prepare, report, totals, weigh
    from tidepool.torch.rank.prepared import current


def tensors(count=48, width=6, seed=0):
    """Inputs and the labels of two classes that can be learned from them."""
    inputs = torch.randn(count, width, generator=torch.Generator().manual_seed(seed))
    return inputs, (inputs[:, 0] + inputs[:, 1] > 0).long()


class _Ordered(Sampler):
    """Draws from a sampler what the prepared loader draws from it in each epoch."""

    def __init__(self, sampler):
        self._sampler, self._epoch = sampler, 0

    def __len__(self):
        return len(self._sampler)

    def __iter__(self):
        epoch, self._epoch = self._epoch, self._epoch + 1
        if isinstance(self._sampler, RandomSampler) and not self._sampler.replacement:
            return iter(epoch_order(_SEED, epoch, len(self._sampler)))
        seed_step(_SEED, epoch * 1009, -5)  # as Orders does in orders.py
        return iter(list(self._sampler))


def ordered(sampler):
    """The sampler; in the plain twin one with the order in which the prepared loader hands out its samples.

    A sampler that draws from a generator of its own needs no such twin.
    """
    return _Ordered(sampler) if PLAIN else sampler


def pace():
    """End a body of the loop: wait here for as long as the harness holds this step."""
    global _bodies
    _bodies += 1
    if PLAIN:
        return
    loop = current().training_loop
    step = loop.position.step + 1
    if not (DATA / f"hold-{step}").exists() or (go := DATA / f"go-{step}").exists():
        return
    (DATA / f"held-{step}-{os.environ['TIDEPOOL_MEMBER_ID']}").touch()
    _wait(go.exists)
    if (size := int(go.read_text())) and is_first():
        transitions = loop.transitions  # a process that is refused meanwhile voids the change
        _wait(lambda: transitions.flag or loop.world_size == size or transitions.recovery_is_due)


def finish(*objects, **values):
    """Write the weights of modules, and other tensors and numbers, for the comparison with other processes."""
    state = {f"{name}": torch.as_tensor(value) for name, value in values.items()}
    for number, item in enumerate(objects):
        of_item = {name: value for name, value in item.state_dict().items() if isinstance(value, torch.Tensor)}
        state |= {f"{number}.{name}": value for name, value in of_item.items()}
    name = "plain" if PLAIN else os.environ["TIDEPOOL_MEMBER_ID"]
    torch.save({name: value.detach().clone() for name, value in state.items()}, RESULTS / f"final-{name}.pt")
    if PLAIN:
        (RESULTS / "course.json").write_text(json.dumps({"steps": _bodies, "passes": sorted(set(_marks))}))


def _wait(met):
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not met():
        if time.monotonic() > deadline:
            raise TimeoutError("the harness holds this process for too long")
        time.sleep(0.005)


def _note_passes():
    begin = DataLoader.__iter__

    def noted(loader):
        _marks.append(_bodies)
        return begin(loader)

    DataLoader.__iter__ = noted
