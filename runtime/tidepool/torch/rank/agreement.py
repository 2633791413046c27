"""Comparison of the ranks' models: a training whose ranks hold different weights is found, whatever the cause.

At a step boundary all ranks hold the same weights and buffers, to the bit. Now and then rank 0 asks for a comparison:
its wish rides on the sum of a step, all ranks compute a digest at the boundary after it, and the digests ride on the
next sum. All ranks read the same sums, so all of them stop with the same error. Rank 0 also asks when it has copied the
state for a checkpoint, which counts once the ranks agree. At the end of a loop the coordinator compares digests.

Numbers of 6 bits and their squares are summed: they are alike on all ranks if the variance is 0. In float32 the sums
are exact for 4,096 ranks. Each comparison misses a difference once in 2**18. Ranks on devices of different kinds may
round an update differently, and are not compared.
"""

import time
import zlib
from collections.abc import Sequence

import torch

from tidepool.refusal import Refusal
from tidepool.torch.adaptive.profiler import device_kind
from tidepool.torch.comm.reducer import AGREEMENT_SIZE, is_alike
from tidepool.torch.state.digest import digest

__all__ = ["Agreement"]

_BITS = 6
#: Pieces of a digest in a step's sum, beside the wish, the number of ranks that tell a digest, and the kind of device:
#: this and each piece with its square.
_PIECES = (AGREEMENT_SIZE - 2) // 2 - 1
#: Shortest time between two comparisons that nothing but time asks for, and a share of it that a digest takes at most.
_SECONDS, _SHARE = 5.0, 0.001


class Agreement:
    """One rank's part in the comparisons."""

    def __init__(self, model: torch.nn.Module, device: torch.device) -> None:
        self._model = model
        kind = f"{device_kind(device)} {torch.backends.cpu.get_cpu_capability()}"
        self._kind = zlib.crc32(kind.encode()) & (2**_BITS - 1)
        self._is_wanted = False
        #: Whether all ranks compute a digest at the boundary that follows.
        self._is_due = False
        self._digest: torch.Tensor | None = None
        #: Step at whose beginning the ranks were last seen to be alike; None: never.
        self._alike_at: int | None = None
        self._next_at = 0.0
        #: Error that ended the comparisons: the loop may have caught it.
        self._refusal: Refusal | None = None

    def want(self) -> None:
        """Ask for a comparison; rank 0 calls this."""
        self._is_wanted = True

    def want_by_time(self, now: float) -> None:
        """Ask for a comparison if the last one was long ago."""
        self._is_wanted = self._is_wanted or now >= self._next_at

    def at_boundary(self) -> None:
        """Compute the digest, if it is due. Raises Refusal again if the ranks differed."""
        if self._refusal is not None:
            raise self._refusal
        if self._is_due and self._digest is None:
            begun = time.monotonic()
            self._digest = digest(self._model)
            now = time.monotonic()
            self._next_at = now + max(_SECONDS, (now - begun) / _SHARE)

    def forget(self) -> None:
        """Begin anew, because a rank died: those that go on may not have read the same sums."""
        self._is_wanted = self._is_wanted or self._is_due
        self._is_due, self._digest = False, None

    def write(self, block: torch.Tensor) -> None:
        """Write this rank's part into its floats of a step's sum, which are zeros."""
        block[0] = float(self._is_wanted)
        if self._digest is not None:
            block[1] = 1.0
            pieces = [self._digest.new_tensor(self._kind), *_pieces(self._digest, _BITS, _PIECES)]
            block[2:] = _with_squares(torch.stack(pieces)).to(block.dtype)

    def read(self, sums: Sequence[float], step: int) -> bool:
        """Return whether the ranks were compared and are alike. sums: over all ranks. step: the one that was summed.

        Raises Refusal on all ranks if they differ.
        """
        wish, ranks, kind, kind_square, *pieces = sums
        if wish:
            self._is_wanted, self._is_due = False, True
        if not ranks:
            return False
        if self._digest is not None:
            self._is_due, self._digest = bool(wish), None
        if not is_alike(ranks, [kind, kind_square]):
            return True
        self.settle(is_alike(ranks, pieces), step)
        return True

    def final(self) -> str:
        """Return kind of device and digest, for the coordinator to compare."""
        return f"{self._kind} {int(digest(self._model)) & (2**64 - 1):016x}"

    def row(self) -> torch.Tensor:
        """Return the number of ranks, 1, and this rank's digest for a sum in float64."""
        squares = _with_squares(torch.stack(_pieces(digest(self._model), 16, 4))).double().cpu()
        return torch.cat([squares.new_ones(1), squares])

    def settle(self, alike: bool, step: int) -> None:
        """Note the result of a comparison. Raises Refusal if the ranks differ."""
        if alike:
            self._alike_at = step
            return
        before = "" if self._alike_at is None else f"; at step {self._alike_at} they still were the same"
        self._refusal = Refusal(
            f"the processes of this training hold different weights or buffers at step {step}{before}. The script "
            "changes them in some processes only: by an optimizer or a model that was not given to tidepool.torch, in "
            "code that only the first process runs, or by random numbers of its own. Checkpoints hold earlier steps, "
            "at which all processes were alike"
        )
        raise self._refusal


def _pieces(number: torch.Tensor, bits: int, count: int) -> list[torch.Tensor]:
    return [(number >> (bits * place)) & (2**bits - 1) for place in range(count)]


def _with_squares(numbers: torch.Tensor) -> torch.Tensor:
    return torch.stack([numbers, numbers * numbers], 1).view(-1)
