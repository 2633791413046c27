"""Serializer fields of responses, which declare both the description and the computation of a value.

A field is computed by a function of the row, or otherwise read from the attribute of its name (or `source`). With
`allow_null`, a missing attribute is null: WMLA's fields that do not apply here are declared in this way.
"""

from collections.abc import Callable
from typing import Any

from rest_framework import serializers

from core.rest import ObjectField

__all__ = ["Address", "Choice", "Flag", "Json", "Many", "Real", "Shape", "Text", "Texts", "Whole"]


class _ComputedField(serializers.Field[Any, Any, Any, Any]):
    def __init__(self, make: Callable[[Any], Any] | None = None, **options: Any) -> None:
        self._make = make
        super().__init__(**options)

    def get_attribute(self, instance: Any) -> Any:
        return self._make(instance) if self._make else super().get_attribute(instance)


class Text(_ComputedField, serializers.CharField):
    pass


class Address(Text):
    """Absolute URL of a path on this site. Needs the request in the serializer's context."""

    def to_representation(self, value: Any) -> str:
        request = self.context["request"]
        return f"{request.scheme}://{request.get_host()}{value}"


class Choice(_ComputedField, serializers.ChoiceField):
    pass


class Whole(_ComputedField, serializers.IntegerField):
    pass


class Real(_ComputedField, serializers.FloatField):
    pass


class Flag(_ComputedField, serializers.BooleanField):
    pass


class Json(_ComputedField, ObjectField):
    pass


class Shape(_ComputedField, serializers.Serializer[Any]):
    pass


class Many(_ComputedField, serializers.ListField):
    pass


class Texts(Many):
    child = serializers.CharField()
