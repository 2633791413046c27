"""Hints in the errors of a loop of a script's own, in the words of the API that it uses."""

from dataclasses import dataclass

__all__ = ["ErrorHints"]


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
