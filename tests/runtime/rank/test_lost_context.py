"""Tests of errors that stick to a rank's CUDA context: whom they are blamed on. See also `comm/test_hard_nccl.py`."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tidepool.rank_exits import ContextLost
from tidepool.torch.rank.transitions import Transitions

GPU = torch.device("cuda", 0)
ILLEGAL = "CUDA error: an illegal memory access was encountered\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1"


def rank(*, peer_died: bool) -> Any:
    """What a rank's transitions know of the others."""
    control = SimpleNamespace(wait_until=lambda condition, seconds: condition())
    return SimpleNamespace(_device=GPU, _control=control, recovery_is_due=peer_died)


def refuse(device: torch.device) -> None:
    raise RuntimeError(ILLEGAL)


def test_after_a_death_the_script_is_not_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", refuse)
    told = Transitions.explained(rank(peer_died=True), RuntimeError(ILLEGAL))
    assert isinstance(told, ContextLost)
    assert "an illegal memory access was encountered. Other ranks go on" in str(told)


def test_without_a_death_it_is_the_scripts_own_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", refuse)
    assert Transitions.explained(rank(peer_died=False), RuntimeError(ILLEGAL)) is None


def test_a_sound_context_explains_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1, 2))
    assert Transitions.explained(rank(peer_died=True), ValueError("bad shape")) is None
