"""Tests of the division of a step, and of the end of an epoch."""

from typing import Literal

import pytest
import torch
from tidepool.torch import Session

SAMPLES, BATCH = 6, 4


def test_who_joins_behind_an_epochs_last_step_has_nothing_to_compute_in_it() -> None:
    model = torch.nn.Linear(1, 1)
    session = Session(model, torch.optim.SGD(model.parameters(), lr=0.1), effective_batch_size=BATCH)
    data = torch.utils.data.TensorDataset(torch.ones(SAMPLES, 1))
    session.position.cursor = SAMPLES  # a joiner that receives the state there has this cursor
    steps = []
    for epoch in session.epochs(2):
        for step in session.steps(data):
            steps.append(epoch)
            for (batch,) in step:
                step.backward(model(batch).mean())
    assert steps == [1, 1]
    assert session.position.passes == 0


@pytest.mark.parametrize(
    ("exactness", "most", "expected"),
    [("sum", None, 0), ("sum", 8, 8), ("bitwise", None, 16), ("bitwise", 12, 8)],
)
def test_the_largest_micro_batch_is_told(exactness: Literal["sum", "bitwise"], most: int | None, expected: int) -> None:
    model = torch.nn.Linear(1, 1)
    session = Session(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        effective_batch_size=64,
        rank_batch_size=most,
        exactness=exactness,
        virtual_ranks=4,
    )
    assert session._training_loop._profiler.most_micro_batch == expected
