"""Fields of answers: each declares beside its description how its value is made, so that a shape is written once.

A field takes a function of the row, or else the attribute of its name (or of `source`). An attribute that the row lacks
is null where `allow_null` says so: that is how WMLA's fields without meaning here are declared.
"""

from collections.abc import Callable
from typing import Any

from rest_framework import serializers

from core.rest import ObjectField

__all__ = ["Address", "Choice", "Flag", "Json", "Many", "Real", "Shape", "Text", "Texts", "Whole"]


class _Made(serializers.Field[Any, Any, Any, Any]):
    def __init__(self, make: Callable[[Any], Any] | None = None, **options: Any) -> None:
        self._make = make
        super().__init__(**options)

    def get_attribute(self, instance: Any) -> Any:
        return self._make(instance) if self._make else super().get_attribute(instance)


class Text(_Made, serializers.CharField):
    pass


class Address(Text):
    """A path on this site, as an absolute address. Needs the request in the serializer's context."""

    def to_representation(self, value: Any) -> str:
        request = self.context["request"]
        return f"{request.scheme}://{request.get_host()}{value}"


class Choice(_Made, serializers.ChoiceField):
    pass


class Whole(_Made, serializers.IntegerField):
    pass


class Real(_Made, serializers.FloatField):
    pass


class Flag(_Made, serializers.BooleanField):
    pass


class Json(_Made, ObjectField):
    pass


class Shape(_Made, serializers.Serializer[Any]):
    pass


class Many(_Made, serializers.ListField):
    pass


class Texts(Many):
    child = serializers.CharField()
