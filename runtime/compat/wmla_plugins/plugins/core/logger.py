"""The logger of search algorithms; its lines are in the log of the training that asks the plug-in."""

import logging

__all__ = ["logger"]

logger = logging.getLogger("plugins")
