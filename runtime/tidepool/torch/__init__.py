"""Elastic data-parallel training for PyTorch scripts. See runtime/README.md for the API."""

from tidepool.torch.adaptation import Adaptive
from tidepool.torch.prepared import epochs, is_first, prepare, report
from tidepool.torch.session import Session
from tidepool.torch.step import Step

__all__ = ["Adaptive", "Session", "Step", "epochs", "is_first", "prepare", "report"]
