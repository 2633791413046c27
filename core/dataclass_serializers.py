"""Serializers made from dataclasses, which declare the fields, types and `null` of a response once.

A text beside a field's type is its description in the API: `Annotated[int, "GPUs that it has."]`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from rest_framework import serializers

from core.rest import ObjectField

__all__ = ["output_of"]

_FIELDS: dict[Any, type[serializers.Field[Any, Any, Any, Any]]] = {
    bool: serializers.BooleanField,
    datetime: serializers.DateTimeField,
    float: serializers.FloatField,
    int: serializers.IntegerField,
    str: serializers.CharField,
}


def output_of(
    kind: type[Any], name: str = "", /, *, without: Sequence[str] = (), **others: serializers.Field[Any, Any, Any, Any]
) -> type[serializers.Serializer[Any]]:
    """Return a serializer of a dataclass. `without`: fields to leave out. `others`: fields that replace its own."""
    hints = get_type_hints(kind, include_extras=True)
    own = {each.name: _field(hints[each.name]) for each in fields(kind) if each.name not in (*without, *others)}
    return type(name or f"{kind.__name__}Output", (serializers.Serializer,), {**own, **others})


def _field(hint: Any, **shown: Any) -> serializers.Field[Any, Any, Any, Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _field(arguments[0], help_text=arguments[1], **shown)
    if hint is Any:
        return serializers.JSONField(allow_null=True, **shown)
    if NoneType in arguments:
        [inner] = set(arguments) - {NoneType}
        return _field(inner, allow_null=True, **shown)
    if origin is Literal:
        return serializers.ChoiceField(arguments, **shown)
    if origin is not None and issubclass(origin, Mapping):
        return ObjectField(**shown)
    if origin is None:
        return _FIELDS[hint](**shown) if hint in _FIELDS else output_of(hint)(**shown)
    assert issubclass(origin, Sequence), hint
    [inner, *_] = arguments
    if is_dataclass(inner):
        return output_of(inner)(many=True, **shown)  # type: ignore[arg-type]
    return serializers.ListField(child=_field(inner), **shown)
