"""A script that takes its next batch before it has computed the present one, as a prefetcher does."""

from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
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

    def __init__(self) -> None:
        #: The batch that the script has, until a backward; the one that it has left, whose memory must stay its own.
        self._present: Any = None
        self._left: Any = None
        self._watch: RemovableHandle | None = None

    def hand_out(self, batch: Any) -> Any:
        self._present = batch
        return batch

    def leave(self) -> None:
        """Note that the script asks for a further batch without a backward in the present one."""
        self._left = self._present
        self._watch = self._watch or register_module_forward_pre_hook(self._look)

    def forget(self) -> None:
        """Note a backward in the present batch."""
        self._present = self._left = None
        if self._watch:
            self._watch.remove()
            self._watch = None

    def _look(self, _module: torch.nn.Module, inputs: Any) -> None:
        if _storages(self._left) & _storages(inputs) - _storages(self._present):
            raise Refusal(_AHEAD)


def _storages(batch: Any) -> set[int]:
    tensors = (leaf for leaf in tree_leaves(batch) if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided)
    return {tensor.untyped_storage().data_ptr() for tensor in tensors} - {0}
