"""Addresses and secrets as the database keeps them: encrypted and authenticated by a key made of the site's."""

import base64

from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings
from django.utils.crypto import salted_hmac

__all__ = ["Unreadable", "sealed", "unsealed"]


class Unreadable(ValueError):
    """The text was encrypted with another key."""


def sealed(text: str) -> str:
    return _fernet().encrypt(text.encode()).decode()


def unsealed(text: str) -> str:
    """Raises Unreadable."""
    try:
        return _fernet().decrypt(text.encode()).decode()
    except InvalidToken:
        raise Unreadable(
            "The address was encrypted with another key of the site: remove this channel and add it again."
        ) from None


def _fernet() -> Fernet:
    key = salted_hmac("alerts.sealing", "", secret=settings.SECRET_KEY, algorithm="sha256").digest()
    return Fernet(base64.urlsafe_b64encode(key))
