"""Causes of a training's time: its shares by part, with the waits for late ranks laid on the part that makes them late.

Pure.
"""

from collections.abc import Sequence

from insights.step_time.shares import RankShare, Shares

__all__ = ["causes_of", "reason_of_straggler"]

#: Parts that can make one rank slower than the others.
_OWN_PARTS = ("data", "compute", "optimizer", "checkpoint", "validation", "script")
#: Fraction of the wait for a straggler that the others spend in its longest part themselves, from which that part is
#: slow everywhere: what makes it shorter for all makes the wait shorter as well.
_ALSO_THEIRS = 0.5


def causes_of(shares: Shares, ranks: Sequence[RankShare], straggler: RankShare | None) -> Shares:
    """Return the fraction of the time that would be saved without each part. They may add up to more than 1.

    shares: over all ranks. With a straggler, the others' shares count, since they would be left without it. Without
    one, ranks come last in turns because their parts vary, each in proportion to its length: such a wait counts as a
    part's, and as straggling where computing varies. So does the wait for a rank that saves, or that takes long over a
    part over which the others take long, too.
    """
    if straggler is None:
        return _with_waits(shares)
    others, blamed = _mean_shares(_others_of(straggler, ranks)), reason_of_straggler(straggler, ranks)
    waiting = others["straggling"]
    if blamed == "checkpoint" or (blamed != "compute" and others[blamed] >= _ALSO_THEIRS * waiting):
        others[blamed] += waiting
    return others


def _with_waits(shares: Shares) -> Shares:
    waiting, own = shares["straggling"], sum(shares[part] for part in _OWN_PARTS)
    if not waiting or not own:
        return shares
    waits = {part: waiting * shares[part] / own for part in _OWN_PARTS}
    straggling = waits.pop("compute")
    return {**shares, **{part: shares[part] + wait for part, wait in waits.items()}, "straggling": straggling}


def _others_of(straggler: RankShare, ranks: Sequence[RankShare]) -> list[RankShare]:
    """Return the other present ranks."""
    return [rank for rank in ranks if rank.rank is not None and rank is not straggler and rank.shares]


def _mean_shares(ranks: Sequence[RankShare]) -> dict[str, float]:
    """Return the mean of the ranks' shares, of which there is one at least."""
    return {part: sum(rank.shares[part] for rank in ranks) / len(ranks) for part in ranks[0].shares}


def reason_of_straggler(straggler: RankShare, ranks: Sequence[RankShare]) -> str:
    """Return the part of which the straggler has most more than the others, in fractions of the time."""
    means = _mean_shares(_others_of(straggler, ranks))
    return max(_OWN_PARTS, key=lambda part: straggler.shares[part] - means[part])
