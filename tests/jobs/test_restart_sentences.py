"""Tests of sentences about starts after an error: how often one was tried, and where a library continues."""

import pytest

from jobs.messages import message, text_of, tried


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        ("", ""),
        ("twice_in_two_ranks", "The same error occurred twice after step 7, in two ranks."),
        ("training_complete", "The training itself was complete."),
        ("restarts_used_up", "It was restarted 10 times after errors."),
        ("always_an_error", "Each of 3 attempts failed with an error, and none got beyond step 7."),
    ],
)
def test_how_often_it_was_tried(key: str, sentence: str) -> None:
    assert tried({"tried": key, "step": 7, "attempts": 3, "restarts": 10}) == sentence


@pytest.mark.parametrize(
    ("library", "sentence"),
    [
        ("transformers", "it continues after step 40, from the newest checkpoint that its Trainer has saved"),
        ("lightning", "it continues after step 40, from the newest checkpoint that Lightning has saved"),
        ("accelerate", "its script continues from the newest state that Accelerate has saved, once it loads that"),
    ],
)
def test_where_a_library_continues(library: str, sentence: str) -> None:
    params = message("gang_held_back", resumable=True, library=library, library_step=40)
    assert text_of(params) == f"Suspended. Once resumed, {sentence}."
