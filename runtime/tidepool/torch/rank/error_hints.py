"""Errors of a loop of a script's own, and hints in the words of the API that it uses."""

from dataclasses import dataclass

import torch

from tidepool.refusal import Refusal
from tidepool.torch.comm.reducer import Reducer
from tidepool.torch.state.update import optimized

__all__ = ["BY_HAND", "ErrorHints", "refuse_unsummed"]

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
        "that is made later is prepared, too: loader = tidepool.torch.prepare(loader))"
    )
    give: str = (
        "Give schedulers, and every object that counts, to tidepool.torch.prepare; a number that a rate or an end of "
        "the loop follows, such as the mean loss of an epoch, comes from tidepool.torch.totals() or from_first()"
    )
    pieces: str = (
        "Pieces come of rank_batch_size, or of exactness bitwise: give the DataLoader a larger batch_size instead, and "
        "prepare a rank_batch_size"
    )


def refuse_unsummed(reducer: Reducer, optimizer: torch.optim.Optimizer) -> None:
    """Raise Refusal if an optimizer that steps in a batch without a backward has gradients that no sum has made."""
    if any(reducer.is_own(one) for one in optimized({"": optimizer})):
        raise Refusal(
            "the optimizer steps in a batch in which no loss.backward() has computed gradients of the prepared model: "
            "those that it has (by torch.autograd.grad, torch.func, or written to .grad) are this process's alone. "
            "Compute them by loss.backward()"
        )
