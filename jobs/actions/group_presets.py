"""Templates that an instance group can be made from: terms that belong together, under a name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["PRESETS", "Preset", "find_preset"]


@dataclass(frozen=True)
class Preset:
    name: str
    label: str
    words: str
    #: Columns of InstanceGroup that it fills in; all else is as usual.
    terms: Mapping[str, Any]
    #: Templates of WMLA that mean the same.
    wmla_names: tuple[str, ...] = ()


PRESETS: Final = (
    Preset(
        "elastic-fair-share",
        "Elastic distributed training: fair share with preemption",
        "Trainings share the GPUs in proportion to their priorities, and shrink and grow live as others come and go. "
        "Nobody is stopped for another one.",
        {"policy": "fairshare", "preemption": True},
        ("dli-sig-template-2-2-0", "dli-sig-template-2-3-3", "wmla-ig-edt-template-2.3.3"),
    ),
    Preset(
        "priority",
        "Priority with preemption",
        "Who has the higher priority gets all that it asks for. Others shrink for it, or stop with a checkpoint and "
        "continue later; none before it has run for five minutes.",
        {"policy": "priority", "preemption": True, "minimum_run_seconds": 300},
    ),
    Preset(
        "first-come",
        "First come, first served",
        "Who came first gets all that it asks for; others wait until it is done. Nothing is taken from a training "
        "that runs.",
        {"policy": "fifo", "preemption": False},
    ),
)  # fmt: skip


def find_preset(name: str) -> Preset | None:
    """Find a preset by its name or by WMLA's, whose versions differ in what they install and not in these terms."""
    return next((preset for preset in PRESETS if name == preset.name or name in preset.wmla_names), None)
