"""Messages between a rank and the store of its training (JSON lines over TCP). Values travel as base64."""

from typing import Literal

import msgspec

__all__ = ["StoreAnswer", "StoreRequest"]


class StoreRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """One operation of `torch.distributed.Store`.

    get: answered once all keys are there. add: `number` to the key's decimal number. compare_set: `values` are
    the expected and the new one.
    """

    op: Literal["get", "set", "check", "add", "append", "compare_set", "delete", "count"]
    keys: list[str] = []
    values: list[bytes] = []
    number: int = 0


class StoreAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    values: list[bytes] = []
    #: Result of check, add, delete and count.
    number: int = 0
    #: Why the request cannot be carried out; "": it was.
    error: str = ""
