"""Elastic data-parallel training for PyTorch scripts. See runtime/README.md for the API."""

from tidepool.torch.adaptive.adaptation import Adaptive
from tidepool.torch.rank.prepared import epochs, is_first, prepare, report, weigh
from tidepool.torch.rank.session import Session
from tidepool.torch.rank.step import Step

__all__ = ["Adaptive", "Session", "Step", "epochs", "is_first", "prepare", "report", "weigh"]
