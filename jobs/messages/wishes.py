"""Sentences about cores and memory that trainings ask for with each GPU."""

from collections.abc import Callable, Mapping
from typing import Any

from tidepool.units import cores_words, size_words

from core.text import plural
from jobs.words import gpus

__all__ = ["OF_WISHES", "counting", "wish_words"]

Params = Mapping[str, Any]


def wish_words(cores: float, memory: int) -> str:
    """Return a wish in words, such as "16 cores and 96 GiB of memory"; "": nothing."""
    parts = [cores_words(cores)] if cores else []
    parts += [f"{size_words(memory)} of memory"] if memory else []
    return " and ".join(parts)


def counting(params: Params) -> str:
    """Return a further sentence about what the GPUs of the reason's training count as; "": one each."""
    if params.get("per_gpu", 1) == 1:
        return ""
    return plural(
        params["gpus"],
        " Its GPU counts as {per_gpu}, because it needs {wish} with it, more than a GPU's share of a host.",
        " Each of its {count} GPUs counts as {per_gpu}, because it needs {wish} with each, more than a GPU's share of "
        "a host.",
        per_gpu=params["per_gpu"],
        wish=_wish(params),
    )


def _wish(params: Params) -> str:
    return wish_words(params.get("cores", 0), params.get("memory", 0))


def _no_host(params: Params) -> str:
    least, wish = params["min_slots"], _wish(params)
    needs = f"Needs {wish} per GPU" if least == 1 else f"Needs {gpus(least)} with {wish} each"
    much = "that many" if not params.get("memory") else "so much"
    most = f"; at most {gpus(params['most'])} with that fit on one" if params["most"] else ""
    return f"{needs}: no host of the group has {much} free beside its GPUs{most}."


OF_WISHES: dict[str, str | Callable[[Params], str]] = {"no_host_for_wish": _no_host}
