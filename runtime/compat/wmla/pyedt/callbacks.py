"""`from pyedt.callbacks import Callback, LoggerCallback`."""

from callbacks import Callback, LoggerCallback

__all__ = ["Callback", "LoggerCallback"]
