"""Bytes of every rank, gathered on all of them: for small things that are no tensors."""

from collections.abc import Sequence

import torch

from tidepool.torch.comm.process_group import Group

__all__ = ["gather_bytes", "packed", "unpacked"]


def gather_bytes(group: Group, own: bytes) -> list[bytes]:
    """Return the bytes of all ranks, in their order. Raises CommunicationError."""
    sizes = torch.zeros(group.size, dtype=torch.float64)
    sizes[group.rank] = float(len(own))
    group.wait(group.all_reduce(sizes))
    lengths = [round(size) for size in sizes.tolist()]
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
