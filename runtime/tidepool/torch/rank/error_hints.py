"""Errors of a loop of a script's own, and hints in the words of the API that it uses."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from tidepool.refusal import Refusal
from tidepool.torch.comm.reducer import Reducer
from tidepool.torch.state.update import optimized

__all__ = ["BY_HAND", "ErrorHints", "Shares", "refuse_unsummed"]

BY_HAND = (
    "the script changes weights by itself and calls no optimizer's step: what follows a batch counts with the step of "
    "an optimizer that was given to tidepool.torch.prepare"
)


@dataclass(frozen=True)
class ErrorHints:
    """Hints about mistakes, in the words of the API that the script uses."""

    outside: str = (
        "loss.backward() outside of a loop over the prepared loader: its gradients would be this process's alone "
        "(while the model is in eval mode the loader divides nothing: call model.train() before the loop; a DataLoader "
        "that is made later is prepared, too: loader = tidepool.torch.prepare(loader); a prefetcher, which takes a "
        "batch before it has computed the one before, is not understood: the DataLoader's workers fetch ahead)"
    )
    give: str = (
        "Give schedulers, and every object that counts, to tidepool.torch.prepare; a number that a rate or an end of "
        "the loop follows, such as the mean loss of an epoch, comes from tidepool.torch.totals() or from_first()"
    )
    pieces: str = (
        "Pieces come of rank_batch_size, or of exactness bitwise: give the DataLoader a larger batch_size instead, and "
        "prepare a rank_batch_size"
    )

    @property
    def elsewhere(self) -> str:
        return (
            "this process is at another batch, takes the samples in another order or has other learning rates than the "
            f"others: the loop must do the same on all. {self.give}; where a loop ends early, or a rate follows a "
            "number of the script's own, let it follow the loader; let a sampler draw from a generator that it keeps, "
            f"or from the global ones. {self.left_out}"
        )

    @property
    def left_out(self) -> str:
        return (
            "A loop that leaves batches out leaves them out by what all processes know: where the loss is not finite, "
            "call loss.backward() and leave out the optimizer's step if the norm of the gradients, which are summed, "
            "is not finite; where this process's samples have no labels, back-propagate a loss of 0 * outputs.sum()"
        )


class Shares:
    """Notes how many samples the script has got, and explains an error by a change of them."""

    def __init__(self) -> None:
        #: Samples of the batch and of this process's part of it, now and before; zeros: a batch of which nothing comes.
        self._now = self._before = (0, 0)
        self._in_body = False

    @contextmanager
    def body(self, samples: int = 0, own: int = 0) -> Iterator[None]:
        """The script has a batch until it asks for the next one."""
        self._before, self._now, self._in_body = self._now, (samples, own), True
        yield
        self._in_body = False

    def explained(self, error: BaseException) -> Refusal | None:
        """Return a refusal in place of an error in the body of the first batch of another size; None for others."""
        (batch, own), (batch_before, own_before) = self._now, self._before
        if not self._in_body or own == own_before or batch_before not in (batch, 0):
            return None
        kinds, others = (RuntimeError, ValueError, IndexError), (Refusal, torch.OutOfMemoryError)
        if not isinstance(error, kinds) or isinstance(error, others):
            return None
        return Refusal(
            "the script failed at the first batch of which this process had another part than of the one before: "
            f"{error}. A loop that keeps something of a batch for the next one, such as a hidden state, needs batches "
            "of one size, which a training on several GPUs does not have: set its maximum to 1 GPU"
        )


def refuse_unsummed(reducer: Reducer, optimizer: torch.optim.Optimizer) -> None:
    """Raise Refusal if an optimizer that steps in a batch without a backward has gradients that no sum has made."""
    if any(reducer.is_own(one) for one in optimized({"": optimizer})):
        raise Refusal(
            "the optimizer steps in a batch in which no loss.backward() has computed gradients of the prepared model: "
            "those that it has (by torch.autograd.grad, torch.func, or written to .grad) are this process's alone. "
            "Compute them by loss.backward()"
        )
