"""Tests of sizes that people write."""

import pytest
from tidepool.units import cores_words, size_in


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("16GiB", 16 * 1024**3),
        ("16 G", 16 * 1024**3),
        ("1.5gb", 3 * 512 * 1024**2),
        ("512M", 512 * 1024**2),
        ("4096", 4096),
        ("12 B", 12),
        ("0", 0),
        ("", None),
        ("GiB", None),
        ("-1G", None),
        ("1e9", None),
        ("16 PiB", None),
    ],
)
def test_a_size_has_the_units_of_the_pages(text: str, wanted: int | None) -> None:
    assert size_in(text) == wanted


@pytest.mark.parametrize(
    ("cores", "words"), [(1, "1 core"), (7.5, "7.5 cores"), (2 / 3, "0.67 cores"), (64.0, "64 cores")]
)
def test_cores_have_a_number_and_a_noun(cores: float, words: str) -> None:
    assert cores_words(cores) == words
