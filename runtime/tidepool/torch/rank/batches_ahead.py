"""A script that takes its next batch before it has computed the present one, as a prefetcher does."""

from typing import Any

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.hooks import RemovableHandle

from tidepool.refusal import Refusal

__all__ = ["BatchesAhead"]

_AHEAD = (
    "the script takes a batch before it has computed the one before, as a prefetcher does: the samples of a batch are "
    "divided and counted while it is computed. Iterate over the prepared loader itself; its DataLoader fetches ahead "
    "by num_workers, prefetch_factor and pin_memory"
)


class BatchesAhead:
    """Watches, once a batch was left without a sum, whether the next forward is given that batch after all.

    Where a script makes other tensors of its batches (on a GPU, or by a transform) before they are forwarded, this
    cannot be seen: then the first backward behind the pass is refused.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        #: The batch that the script has, until a backward, and the one that it has left.
        self._present: Any = None
        self._left: Any = None
        #: On all modules of the model, which may be no more than a list of the script's models.
        self._watches: list[RemovableHandle] = []

    def hand_out(self, batch: Any) -> Any:
        self._present = batch
        return batch

    def leave(self) -> None:
        """Note that the script asks for a further batch without a backward in the present one."""
        self._left = self._present
        if not self._watches:
            self._watches = [
                module.register_forward_pre_hook(self._look, with_kwargs=True) for module in self._model.modules()
            ]

    def forget(self) -> None:
        """Note a backward in the present batch, or the end of the pass."""
        self._present = self._left = None
        for watch in self._watches:
            watch.remove()
        self._watches = []

    def _look(self, _module: torch.nn.Module, inputs: Any, named: Any) -> None:
        if _tensors(self._left) & (_tensors((inputs, named)) - _tensors(self._present)):
            raise Refusal(_AHEAD)


def _tensors(batch: Any) -> set[int]:
    return {id(leaf) for leaf in tree_leaves(batch) if isinstance(leaf, torch.Tensor)}
