"""`from pyedt.callbacks import Callback, LoggerCallback`."""

from __future__ import annotations

from callbacks import Callback, LoggerCallback

__all__ = ["Callback", "LoggerCallback"]
