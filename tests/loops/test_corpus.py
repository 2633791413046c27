"""Loops of the corpus train as their plain twins do, or are refused. See tests.loops for all patterns by hand."""

import random
from pathlib import Path

import pytest

from tests.loops.loop import Loop, corpus
from tests.loops.patterns import PATTERNS, pattern_of
from tests.loops.played import play
from tests.loops.twins import run_twin
from tests.loops.verdict import judge

#: Loops and patterns that run in the suite; all others are marked `long`.
_SHORT = {
    "beside_for_ever": "join-first",
    "plain_epochs": "kill-first",
    "shuffled": "1-3-2",
    "teacher_last": "join-between",
    "lbfgs": "2",
    "thaw_by_new_optimizer": "join-first",
    "gan": "1-3-2",
    "accumulate_with_rest": "suspend",
    "packed_sequences": "kill-other",
    "ignored_labels": "join-last",
    "two_passes_per_epoch": "4",
    "by_iterations": "kill-first",
    "iterator_class": "join-last",
    "early_break": "join-last",
    "one_batch_per_epoch": "join-between",
    "memory_bank_grows": "1-3-2",
    "gradients_by_autograd": "2",
    "rate_by_local_counter": "suspend",
    "trainer_with_step": "join-between",
    "rate_by_place_in_pieces": "1-3-2",
    "gan_critic": "kill-first",
    "ema_not_given": "2",
    "ema_given": "kill-first",
}


def _cases() -> list[object]:
    def mark(loop: Loop, pattern: str) -> list[pytest.MarkDecorator]:
        return [] if _SHORT.get(loop.name) == pattern else [pytest.mark.long]

    return [
        pytest.param(loop, pattern, id=f"{loop.name}-{pattern}", marks=mark(loop, pattern))
        for loop in corpus()
        for pattern in PATTERNS
    ]


@pytest.mark.parametrize(
    ("name", "spelled"),
    [
        ("early_stopper", "2,suspend@19=2"),  # the checkpoint is written between two epochs
        ("best_weights", "3,suspend@24=3"),  # the best loss is carried, and so are the weights that had it
        ("pseudo_labels", "2,suspend@20=2"),  # labels of the resumed epoch come from the weights that began it
        ("many_metrics", "2,kill-other@14=2"),  # metrics come when the record of their step is written
        ("plateau_by_totals", "2,kill-first@35=2"),  # the totals lack something, and the logs say so
    ],
)
def test_what_random_patterns_have_found(forkserver: Path, tmp_path: Path, name: str, spelled: str) -> None:
    [loop] = corpus([name])
    course = run_twin(loop, tmp_path / "twin")
    played = play(loop, pattern_of(spelled, course, random.Random(0)), forkserver, tmp_path / "runs")
    verdict = judge(loop, course, played)
    assert verdict.kind in ("trained", "differs"), f"{verdict.words}\n{played.labs[-1].story()}"


@pytest.mark.parametrize(("loop", "pattern"), _cases())
def test_a_loop_trains_as_alone_or_is_refused(forkserver: Path, tmp_path: Path, loop: Loop, pattern: str) -> None:
    course = run_twin(loop, tmp_path / "twin")
    plan = pattern_of(pattern, course, random.Random(f"{loop.name} 0"))
    played = play(loop, plan, forkserver, tmp_path / "runs")
    verdict = judge(loop, course, played)
    assert verdict.kind != "WRONG", f"{verdict.words}\n{played.labs[-1].story()}"
