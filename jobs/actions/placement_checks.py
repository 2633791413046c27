"""Checks of how a submission divides its processes among GPUs and hosts."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from jobs.actions.submission_checks import Problems
from jobs.models import InstanceGroup
from jobs.options import OptionColumns, Options, engine_of
from models_registry.models import RegisteredModelVersion
from workers.queries import host_sizes

__all__ = ["check_processes", "placement_of", "with_placement"]

Submitted = TypeVar("Submitted", bound=Options)
_Engine = RegisteredModelVersion.Engine
_Placement = OptionColumns.Placement


def check_processes(problems: Problems, given: Options, model: RegisteredModelVersion | None) -> None:
    chosen = (OptionColumns.GpusPerProcess.ONE, OptionColumns.GpusPerProcess.ALL)
    if model is not None and model.engine == _Engine.ELASTIC and given.gpus_per_process in chosen:
        problems.add("gpus_per_process", f"{model.model.name} is elastic and has one GPU per process: choose 'script'.")


def placement_of(model: RegisteredModelVersion, options: Options | OptionColumns, max_slots: int) -> dict[str, Any]:
    """Return the placement that so many GPUs of the training need in any case; {} if the options decide."""
    is_one = engine_of(model, options.gpus_per_process) == _Engine.SINGLE and max_slots != 1
    return {"placement": _Placement.ONE_HOST} if is_one else {}


def with_placement(
    problems: Problems, given: Submitted, group: InstanceGroup | None, model: RegisteredModelVersion | None
) -> Submitted:
    """Check the placement, and return the options with the one that the code needs, if they leave it to the code."""
    max_slots = given.max_slots
    if given.placement not in _Placement.values or model is None or type(max_slots) is not int:
        return given  # other checks tell of it
    if model.engine == _Engine.ELASTIC:
        if given.placement not in (_Placement.SCRIPT, _Placement.ANY):
            problems.add("placement", f"{model.model.name} is elastic and may move between hosts: choose 'any'.")
        return replace(given, placement=_Placement.ANY)
    sizes = host_sizes(group.resource_group) if group is not None else []
    given = replace(given, **(_needed(given, model, sizes) | placement_of(model, given, max_slots)))
    if group is None or max_slots > sum(sizes):  # `check_slots` tells of too many GPUs
        return given
    if given.on_one_host and max(sizes) < max_slots:
        is_one = engine_of(model, given.gpus_per_process) == _Engine.SINGLE
        problems.add(
            "max_slots" if is_one else "placement",
            f"No host of {group.name} has {max_slots} GPUs, at most {max(sizes)}: request fewer"
            + (", because one process uses all of them." if is_one else ", or choose 'any'."),
        )
    elif given.on_equal_hosts and not _divides(max_slots, sizes):
        possible = [count for count in range(1, sum(sizes) + 1) if _divides(count, sizes)]
        near = sorted({*[count for count in possible if count < max_slots][-1:], *_first_above(max_slots, possible)})
        problems.add(
            "max_slots",
            f"{max_slots} GPUs cannot be divided into equal numbers on hosts of {group.name}, as the script needs: "
            f"request {' or '.join(map(str, near))}, or choose the placement 'any'.",
        )
    return given


def _needed(given: Options, model: RegisteredModelVersion, sizes: Sequence[int]) -> dict[str, Any]:
    """Return the placement that the code needs; {} if another one was chosen."""
    if given.placement != _Placement.SCRIPT:
        return {}
    if not model.declared.needs_equal_hosts or given.max_slots == 1:
        return {"placement": _Placement.ANY}
    fits_one = given.max_slots <= max(sizes, default=0)
    return {"placement": _Placement.ONE_HOST if fits_one else _Placement.EQUAL}


def _divides(count: int, sizes: Sequence[int]) -> bool:
    """Return whether so many GPUs can be an equal number on each of some hosts."""
    return any(
        count % each == 0 and sum(size >= each for size in sizes) >= count // each for each in range(1, count + 1)
    )


def _first_above(count: int, possible: Sequence[int]) -> Sequence[int]:
    return [each for each in possible if each > count][:1]
