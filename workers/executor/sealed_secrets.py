"""Secrets of users on their way to a host, encrypted with a key that this host and the control plane have in common.

They travel in a desired state, which the broker and a file of the host's contain. The cipher is AES-256-GCM. Its key is
derived from the key by which the two sign their messages (`workers.host_keys`); what is sealed for one attempt on one
host opens for no other.
"""

import base64
import os
from collections.abc import Sequence

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from tidepool.protocol import GivenSecret

__all__ = ["UnreadableSecretsError", "opened_secrets", "sealed_secrets"]

_NONCE_BYTES = 12


class UnreadableSecretsError(Exception):
    """The secrets were not sealed for this host and attempt, or were changed on their way."""


def sealed_secrets(host_key: str, host: str, job: int, attempt: int, secrets: Sequence[GivenSecret]) -> str:
    """Encrypt secrets for an attempt's processes on a host; "" if there are none."""
    if not secrets:
        return ""
    nonce = os.urandom(_NONCE_BYTES)
    sealed = _cipher(host_key).encrypt(nonce, msgspec.json.encode(list(secrets)), _purpose(host, job, attempt))
    return base64.b64encode(nonce + sealed).decode()


def opened_secrets(host_key: str, host: str, job: int, attempt: int, sealed: str) -> tuple[GivenSecret, ...]:
    """Decrypt what `sealed_secrets` returned. Raises UnreadableSecretsError."""
    if not sealed:
        return ()
    try:
        data = base64.b64decode(sealed, validate=True)
        text = _cipher(host_key).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], _purpose(host, job, attempt))
        return msgspec.json.decode(text, type=tuple[GivenSecret, ...])
    except (ValueError, InvalidTag, msgspec.MsgspecError) as error:
        raise UnreadableSecretsError(
            "the secrets of this training were not encrypted with the key of this host: let the host join again"
        ) from error


def _cipher(host_key: str) -> AESGCM:
    return AESGCM(HKDF(SHA256(), 32, salt=None, info=b"tidepool user secrets").derive(host_key.encode()))


def _purpose(host: str, job: int, attempt: int) -> bytes:
    return f"{host}.{job}.{attempt}".encode()
