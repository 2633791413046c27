"""Fields of the Train page for parameters: the model's, those that its script declares, and WMLA's settings."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from core.parameters import Scalar, as_scalar, kind_of
from models_registry.model_settings import SETTINGS, Setting
from models_registry.models import RegisteredModelVersion
from models_registry.script_declarations import Argument

__all__ = ["ParameterField", "given_in", "parameter_fields"]

_ON_OFF = ("true", "false")


@dataclass(frozen=True)
class ParameterField:
    name: str
    kind: Literal["flag", "number", "text", "choice"]
    #: Default value; None: only the script knows it.
    usual: Scalar | None = None
    choices: tuple[Any, ...] = ()
    help: str = ""
    #: Whether the model sets the value.
    is_own: bool = False

    @property
    def value(self) -> str:
        """Initial text of the field. A default that only the script sets is shown behind the field instead."""
        return _text(self.usual) if self.is_own or self.kind == "flag" else ""

    def as_json(self) -> dict[str, Any]:
        choices = [*_ON_OFF] if self.kind == "flag" else [str(choice) for choice in self.choices]
        shown = {"name": self.name, "kind": self.kind, "value": self.value, "help": self.help, "choices": choices}
        return {**shown, "usual": _text(self.usual)}

    def read(self, text: str) -> Scalar:
        """Return the value that a text in the field stands for."""
        known = next((choice for choice in self.choices if str(choice) == text), None)
        if known is not None:
            return known  # type: ignore[no-any-return]
        value: Scalar = text if self.kind in ("text", "choice") else as_scalar(text)
        return value


def parameter_fields(version: RegisteredModelVersion) -> list[ParameterField]:
    declared = version.declared
    own = [_own(name, value, declared.find(name)) for name, value in version.parameters.items()]
    known = {argument.name for name in version.parameters if (argument := declared.find(name))}
    others = [each for each in declared.arguments if each.name not in {*known, *version.folder_arguments}]
    taught = SETTINGS if declared.asks_manager else ()
    names = {*version.parameters, *(each.name for each in others)}
    settings = [_of_setting(each, version.settings) for each in taught if each.name not in names]
    return [*own, *settings, *map(_of_argument, others)]


def given_in(texts: Mapping[str, str], fields: Iterable[ParameterField]) -> dict[str, Scalar]:
    """Return the given values by name, except empty ones and defaults."""
    read = {field: field.read(text) for field in fields if (text := texts.get(field.name, "").strip())}
    return {field.name: value for field, value in read.items() if value != field.usual}


def _own(name: str, value: Scalar, argument: Argument | None) -> ParameterField:
    choices = (argument.choices or ()) if argument else ()
    kind = "choice" if choices else kind_of(value)
    return ParameterField(name, kind, value, choices, argument.help if argument else "", is_own=True)  # type: ignore[arg-type]


def _of_argument(argument: Argument) -> ParameterField:
    if argument.is_boolean:
        return ParameterField(argument.name, "flag", bool(argument.default), help=argument.help)
    usual = argument.default if isinstance(argument.default, str | int | float) else None
    kind: Literal["choice", "number", "text"] = "number" if argument.is_number else "text"
    choices = argument.choices or ()
    return ParameterField(argument.name, "choice" if choices else kind, usual, choices, argument.help)


def _of_setting(setting: Setting, chosen: Mapping[str, Any]) -> ParameterField:
    kind: Literal["choice", "number", "text"] = "text" if setting.kind == "list" else "number"
    usual = chosen.get(setting.name)
    return ParameterField(
        setting.name,
        "choice" if setting.choices else kind,
        usual,
        setting.choices,
        setting.help,
        is_own=usual is not None,
    )


def _text(value: Scalar | None) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)
