"""Secrets that are shown once: random, and only their digest is stored."""

from __future__ import annotations

import hashlib
import secrets

__all__ = ["digest_of", "new_secret"]


def new_secret() -> str:
    """256 bits: nobody guesses it, so a fast digest of it is enough."""
    return secrets.token_urlsafe(32)


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
