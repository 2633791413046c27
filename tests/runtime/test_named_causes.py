"""Ten trainings that are slow by one known cause: each cause is named, with the fraction of the time that it takes."""

from pathlib import Path

import pytest

from tests.hosts.machines import why_impossible
from tests.missing import leave_out
from tests.runtime.slow_trainings import CGROUPS, SLOW, Answer, SlowTraining, answered, slowed_by

pytestmark = pytest.mark.long


@pytest.mark.parametrize("training", SLOW, ids=lambda training: training.name)
def test_the_cause_is_named_with_its_share(training: SlowTraining, tmp_path: Path) -> None:
    if training.needs_root and (reason := why_impossible()):
        leave_out(f"nothing can be held back: {reason}")
    if training.needs_root and not (CGROUPS / "blkio").is_dir():
        leave_out("cgroups of version 1 are missing")
    answer = outcome(training, tmp_path / "slow", True)
    truth = answer.truth
    if truth is None:
        truth = slowed_by(answer, outcome(training, tmp_path / "free", False))
    assert answer.code == training.code, answer
    assert training.words in answer.text, answer
    assert abs(answer.share - truth) < 0.1, (truth, answer)


def outcome(training: SlowTraining, folder: Path, slow: bool) -> Answer:
    folder.mkdir()
    with training.run(folder, slow) as lab:
        return answered(training, lab)
