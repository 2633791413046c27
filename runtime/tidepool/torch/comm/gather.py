"""Bytes of every rank, gathered on all of them: for small things that are no tensors.

Each gather begins with a header, in which the ranks compare what they gather. It is a collective of another kind than
the sums of steps: a rank that comes to it while the others sum waits, as they do, until somebody notices. (Gloo ends a
process that gets a message of another length than its sum expects.)
"""

import sys
import time
import zlib
from collections.abc import Sequence

import torch

from tidepool.collective_calls import CollectiveCall, calls_differ, described, place_in_script
from tidepool.refusal import Refusal
from tidepool.torch.comm.process_group import Group

__all__ = ["WAITS_LONG_SECONDS", "call_of", "gather_bytes", "meet_in", "packed", "unpacked"]


#: Wait of a rank after which it says what it waits in.
WAITS_LONG_SECONDS = 1.0


def gather_bytes(group: Group, own: bytes, kind: str) -> list[bytes]:
    """Return the bytes of all ranks, in their order. kind: as of `meet_in`, with its errors."""
    return _exchanged(group, own, meet_in(group, kind, len(own)))


def meet_in(group: Group, kind: str, own: int = 0) -> list[int]:
    """Enter a collective together with the other ranks, and return the numbers that all of them give.

    kind: the function that the script has called, in words that are the same on all ranks.
    Raises CommunicationError, and Refusal on all ranks if they have entered collectives of different kinds.
    """
    group.enter(kind)
    numbers, kinds = _header(group, own, zlib.crc32(kind.encode()))
    if len({*kinds}) > 1:
        call = described(kind, place_in_script(sys._getframe(1))).encode()
        calls = _exchanged(group, call, _header(group, len(call), 0)[0])
        raise Refusal(calls_differ({f"rank {rank}": words.decode() for rank, words in enumerate(calls)}))
    return numbers


def call_of(group: Group, thread: int) -> CollectiveCall | None:
    """Return the collective in which a thread has waited for some time; None: it has not. For another thread to ask.

    The frames of a thread that runs may be gone while they are looked at, which Python does not always survive.
    """
    entered, since = group.entered, group.waiting_since
    if since is None or time.monotonic() - since <= WAITS_LONG_SECONDS or not entered[0]:
        return None
    place = place_in_script(sys._current_frames().get(thread))
    return CollectiveCall(*entered, place) if group.entered is entered else None


def _header(group: Group, *own: int) -> list[list[int]]:
    """Return each of the numbers of all ranks."""
    if group.size == 1:
        return [[number] for number in own]
    gathered = torch.zeros(group.size * len(own), dtype=torch.int64)
    group.wait(group.gather(gathered, torch.tensor(own)))
    columns: list[list[int]] = gathered.view(group.size, len(own)).T.tolist()
    return columns


def _exchanged(group: Group, own: bytes, lengths: list[int]) -> list[bytes]:
    pieces = [torch.zeros(length, dtype=torch.uint8) for length in lengths]
    if own:
        pieces[group.rank] = torch.frombuffer(bytearray(own), dtype=torch.uint8)
    whole = torch.cat([*pieces, torch.zeros(1, dtype=torch.uint8)])  # never empty
    group.wait(group.all_reduce(whole))
    return [bytes(piece.numpy()) for piece in torch.split(whole, [*lengths, 1])[:-1]]


def packed(pieces: Sequence[bytes]) -> list[float]:
    """Encode as numbers, which a training's position can hold."""
    return [float(len(pieces)), *(float(len(piece)) for piece in pieces), *(float(one) for one in b"".join(pieces))]


def unpacked(numbers: Sequence[float]) -> list[bytes]:
    count = round(numbers[0])
    lengths = [round(length) for length in numbers[1 : count + 1]]
    content = bytes(round(number) for number in numbers[count + 1 :])
    starts = [sum(lengths[:place]) for place in range(count)]
    return [content[start : start + length] for start, length in zip(starts, lengths, strict=True)]
