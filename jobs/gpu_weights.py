"""Weights of GPU models in a fair share: the text "A100=4, T4=1" and its values."""

from collections.abc import Mapping, Sequence
from typing import Final

__all__ = ["LARGEST", "LEAST", "as_text", "no_such_gpus", "weights_of"]

LEAST: Final = 0.01
LARGEST: Final = 1000.0
_MOST_MODELS: Final = 100


def weights_of(text: str) -> dict[str, float]:
    """Return model -> weight. Raises ValueError with a sentence that says what is wrong."""
    found: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        model, equals, weight = (piece.strip() for piece in part.rpartition("="))
        if not equals or not model:
            raise ValueError(f"{part[:80]!a} is no weight: write MODEL=WEIGHT, such as A100=4, separated by commas.")
        if model in found:
            raise ValueError(f"{model[:80]!a} has two weights: give one.")
        found[model] = _weight(model, weight)
    if len(found) > _MOST_MODELS:
        raise ValueError(f"Give weights of at most {_MOST_MODELS} models.")
    return found


def _weight(model: str, text: str) -> float:
    try:
        weight = round(float(text), 2)
    except ValueError:
        weight = 0.0
    if not LEAST <= weight <= LARGEST:
        raise ValueError(f"The weight of {model[:80]!a} must be a number from {LEAST} to {LARGEST:g}.")
    return weight


def as_text(weights: Mapping[str, float]) -> str:
    """Return the text of these weights."""
    return ", ".join(f"{model}={weight:g}" for model, weight in weights.items())


def no_such_gpus(models: Sequence[str], resource_group: str) -> str:
    """Return a sentence about models whose weights have no effect."""
    return f"No host of {resource_group} has a GPU of model {' or '.join(models)}: these weights have no effect."
