"""NAME=VALUE on the command line means what `name = value` means on the Train page."""

import pytest
from tidepool.cli.named_values import named_scalars, named_texts
from tidepool.client.errors import InvalidRequest

from core.parameters import as_scalar


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("1e-3", 0.001),
        ("true", True),
        ("relu", "relu"),
        ("007", "007"),
        ("a=b", "a=b"),
        ("", ""),
        ("null", "null"),
        ("[1, 2]", "[1, 2]"),
    ],
)
def test_values_are_typed_as_on_the_train_page(text: str, value: object) -> None:
    found = named_scalars("--set", [f"name={text}"])["name"]
    assert (found, type(found)) == (value, type(value))
    assert found == as_scalar(text)


def test_the_last_of_a_name_counts() -> None:
    assert named_texts("--set", ["epochs=5", "epochs=6"]) == {"epochs": "6"}


@pytest.mark.parametrize("text", ["epochs", "=5", ""])
def test_a_text_that_is_no_pair_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"--set '.*' is not NAME=VALUE: write it like epochs=5"):
        named_texts("--set", [text])
