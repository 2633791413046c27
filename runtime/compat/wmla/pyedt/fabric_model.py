"""`from pyedt.fabric_model import FabricModel`."""

from __future__ import annotations

from fabric_model import FabricModel

__all__ = ["FabricModel"]
