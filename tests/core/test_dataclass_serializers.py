from dataclasses import dataclass
from typing import Annotated, Any, Literal

from rest_framework import serializers

from core.dataclass_serializers import output_of


@dataclass(frozen=True)
class Wheel:
    size: Annotated[int, "In inches."]


@dataclass(frozen=True)
class Cart:
    name: str
    kind: Literal["hand", "ox"]
    wheels: tuple[Wheel, ...]
    spare: Annotated[Wheel | None, "null: none."]
    load: float | None
    marks: list[str]
    facts: dict[str, int]
    other: Any
    secret: str = ""


def test_an_answer_has_the_fields_of_its_dataclass() -> None:
    output = output_of(Cart, without=["secret"])
    cart = Cart("old", "ox", (Wheel(26), Wheel(28)), None, None, ["a"], {"b": 1}, [2], "secret")
    assert output.__name__ == "CartOutput"
    assert output(cart).data == {
        "name": "old",
        "kind": "ox",
        "wheels": [{"size": 26}, {"size": 28}],
        "spare": None,
        "load": None,
        "marks": ["a"],
        "facts": {"b": 1},
        "other": [2],
    }


def test_a_field_says_what_it_means_and_whether_it_may_be_null() -> None:
    fields = output_of(Cart)().fields
    assert fields["spare"].help_text == "null: none."
    assert {name for name, field in fields.items() if field.allow_null} == {"spare", "load", "other"}
    assert fields["wheels"].child.fields["size"].help_text == "In inches."


def test_a_field_may_stand_in_place_of_its_own() -> None:
    output = output_of(Wheel, "RimOutput", size=serializers.CharField(), name=serializers.CharField(default="rim"))
    assert (output.__name__, output({"size": 26, "name": "x"}).data) == ("RimOutput", {"size": "26", "name": "x"})
