"""Elastic data-parallel training for PyTorch scripts. See runtime/README.md for the API."""

from tidepool.torch.adaptive.adaptation import Adaptive
from tidepool.torch.rank.prepared import add_up, epochs, from_first, is_first, prepare, report, totals, weigh
from tidepool.torch.rank.session import Session
from tidepool.torch.rank.step import Step

__all__ = [
    "Adaptive",
    "Session",
    "Step",
    "add_up",
    "epochs",
    "from_first",
    "is_first",
    "prepare",
    "report",
    "totals",
    "weigh",
]
