"""Topic of live events about accounts."""

__all__ = ["ACCOUNTS"]

#: Ids of users whose role, password or activity changed: websockets then check their user again. No browser hears it.
ACCOUNTS = "accounts"
