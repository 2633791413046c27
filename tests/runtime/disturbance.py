"""Disturbances of a training: ranks come, one is killed, ranks leave."""

import signal
from typing import Any

import torch

from tests.runtime.lab import Lab
from tests.waiting import wait_until


def disturbed(lab: Lab, victim: str, steps: int) -> dict[str, Any]:
    """Final weights after 2 -> 3 ranks, the victim's death, its successor, and 2 ranks again; so many steps in all."""
    lab.size(2)
    wait_until(lambda: len(lab.member_ids()) == 2 or lab.exits(), lab.story)
    lab.wait_for_steps(2)
    lab.size(3)
    wait_until(lambda: victim in lab.exits(), lab.story)
    wait_until(lambda: len(lab.member_ids()) == 3 and victim not in lab.member_ids(), lab.story)
    lab.wait_for_steps(3)
    lab.size(2)
    lab.wait_for_size(2)
    lab.wait_for_the_end()
    killed = [member_id for member_id, end in lab.exits().items() if end["signal"] == signal.SIGKILL]
    assert killed == [victim], lab.story()
    assert all(end["code"] == 0 for member_id, end in lab.exits().items() if member_id != victim), lab.story()
    assert not lab.journal("lost")
    assert [record["step"] for record in lab.steps()] == list(range(1, steps + 1))
    return final_weights(lab)


def final_weights(lab: Lab) -> dict[str, Any]:
    return torch.load(lab.folder / "model/train/model_epoch_final.pth", weights_only=True)
