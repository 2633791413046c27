"""Weights of GPU models as text."""

import pytest

from jobs.gpu_weights import as_text, weights_of


def test_models_have_spaces_and_weights_two_decimals() -> None:
    found = weights_of(" Tesla T4 = 1,NVIDIA GeForce RTX 2080 Ti=2.555 , A100=4,")
    assert found == {"Tesla T4": 1.0, "NVIDIA GeForce RTX 2080 Ti": 2.56, "A100": 4.0}
    assert as_text(found) == "Tesla T4=1, NVIDIA GeForce RTX 2080 Ti=2.56, A100=4"
    assert weights_of(as_text(found)) == found
    assert weights_of("") == {}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("A100", "'A100' is no weight: write MODEL=WEIGHT, such as A100=4, separated by commas."),
        ("=4", "'=4' is no weight: write MODEL=WEIGHT, such as A100=4, separated by commas."),
        ("A100=4, A100=5", "'A100' has two weights: give one."),
        ("A100=0", "The weight of 'A100' must be a number from 0.01 to 1000."),
        ("A100=-1", "The weight of 'A100' must be a number from 0.01 to 1000."),
        ("A100=1e9", "The weight of 'A100' must be a number from 0.01 to 1000."),
        ("A100=nan", "The weight of 'A100' must be a number from 0.01 to 1000."),
        ("A100=inf", "The weight of 'A100' must be a number from 0.01 to 1000."),
        ("A100=much", "The weight of 'A100' must be a number from 0.01 to 1000."),
        (", ".join(f"K{number}=1" for number in range(101)), "Give weights of at most 100 models."),
    ],
)
def test_what_is_no_weight_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=r".") as error:
        weights_of(text)
    assert str(error.value) == sentence
