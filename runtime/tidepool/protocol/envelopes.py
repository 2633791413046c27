"""Signed envelopes of the messages between the control plane and a host that has a key."""

import hmac
import json
from typing import Annotated, Literal

import msgspec

from tidepool.protocol.codec import Bytes, Name, to_json

__all__ = ["Envelope", "is_genuine", "seal"]

Kind = Literal["report", "sync"]


class Envelope(msgspec.Struct, frozen=True):
    """A `Report` or `Sync` with a proof (HMAC-SHA256) of its sender, its host and its place among the others."""

    host: Name
    #: Number of the executor's start, higher with each; of a desired state: the newest that the control plane knows.
    boot: Bytes
    #: Place of a report among those since the start; number of a desired state, used once and told in no order.
    number: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    #: The message as JSON.
    body: str
    proof: Annotated[str, msgspec.Meta(max_length=64)]


def seal(key: str, kind: Kind, message: msgspec.Struct, *, host: str, boot: int, number: int) -> Envelope:
    # Not msgspec.json, for the reason that `encode` gives.
    body = json.dumps(to_json(message), separators=(",", ":"))
    return Envelope(host, boot, number, body, _proof(key, kind, host, boot, number, body))


def is_genuine(key: str, kind: Kind, envelope: Envelope) -> bool:
    """Return whether a sender who knows the key has made the envelope, for this kind of message."""
    due = _proof(key, kind, envelope.host, envelope.boot, envelope.number, envelope.body)
    return hmac.compare_digest(due.encode(), envelope.proof.encode())


def _proof(key: str, kind: Kind, host: str, boot: int, number: int, body: str) -> str:
    words = json.dumps(["tidepool-1", kind, host, boot, number]) + "\n" + body
    return hmac.digest(key.encode(), words.encode("utf-8", "surrogatepass"), "sha256").hex()
