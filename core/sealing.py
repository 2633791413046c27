"""Values that the database keeps encrypted, with a key that is in a file apart from it.

The cipher is AES-256-GCM. A value is bound to what it belongs to: who can write to the database cannot move a value to
another row and have it opened there. The beginning of a sealed text names its key.
"""

import base64
import hashlib
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.conf import settings

__all__ = ["UnreadableError", "seal", "unseal"]

_NONCE_BYTES = 12


class UnreadableError(ValueError):
    """The value was sealed with another key, or for another row."""


def seal(text: str, belongs_to: str) -> str:
    """Encrypt a text. belongs_to: name of the row, which `unseal` has to give again."""
    nonce = os.urandom(_NONCE_BYTES)
    sealed = AESGCM(_key()).encrypt(nonce, text.encode(), belongs_to.encode())
    return f"{_key_name()}:{base64.b64encode(nonce + sealed).decode()}"


def unseal(sealed: str, belongs_to: str) -> str:
    """Decrypt what `seal` returned. Raises UnreadableError."""
    name, _, text = sealed.partition(":")
    if name != _key_name():
        raise UnreadableError(
            f"it was encrypted with another key than that of {settings.TIDEPOOL_SECRETS_KEY_FILE}: restore that file "
            "from its backup, or enter the value again"
        )
    data = base64.b64decode(text)
    try:
        return AESGCM(_key()).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], belongs_to.encode()).decode()
    except InvalidTag:
        raise UnreadableError("its row in the database was changed by hand: enter the value again") from None


def _key() -> bytes:
    return hashlib.sha256(settings.USER_SECRETS_KEY.encode()).digest()


def _key_name() -> str:
    """Return a name of the key that tells nothing of it."""
    return hashlib.sha256(b"name of " + _key()).hexdigest()[:12]
