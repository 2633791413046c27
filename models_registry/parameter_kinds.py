"""Kinds of the parameters that a model's script takes."""

from models_registry.model_settings import SETTINGS
from models_registry.models import RegisteredModelVersion

__all__ = ["text_parameters"]


def text_parameters(version: RegisteredModelVersion) -> list[str]:
    """Return the names of the parameters whose value is a text, in which a comma may mean anything.

    In the value of any other parameter, commas separate the values of a sweep.
    """
    declared = version.declared
    own = {name for name, value in version.parameters.items() if isinstance(value, str)}
    taught = {setting.name for setting in SETTINGS if setting.kind == "list"} if declared.asks_manager else set()
    return sorted({*own, *taught, *(argument.name for argument in declared.arguments if argument.is_text)})
