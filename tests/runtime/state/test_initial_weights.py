"""Weights that other code has saved: the usual wrappings are understood, and what does not fit is told once."""

import argparse
import json
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tidepool.refusal import Refusal
from tidepool.torch.state.checkpoint_files import load_weights
from torch import nn
from torch.optim.swa_utils import AveragedModel

from tests.runtime.bits import different

State = dict[str, torch.Tensor]


class Tied(nn.Module):
    """A language model: the head shares the memory of the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight


class Around(nn.Module):
    """Has names that begin with what wrappers put before others."""

    def __init__(self) -> None:
        super().__init__()
        self.model = plain()


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def prefixed(prefix: str) -> Callable[[State], State]:
    return lambda state: {f"{prefix}{name}": value for name, value in state.items()}


def optimizer_state() -> dict[str, Any]:
    model = plain()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 6)).sum().backward()
    optimizer.step()
    return optimizer.state_dict()


WRAPPINGS: dict[str, Callable[[State], Any]] = {
    "as they are": lambda state: state,
    "DistributedDataParallel": prefixed("module."),
    "torch.compile": prefixed("_orig_mod."),
    "both": prefixed("module._orig_mod."),
    "a compiled part": lambda state: {name.replace("0.", "0._orig_mod."): value for name, value in state.items()},
    "an attribute, twice": prefixed("model.model."),
    "a dict of a script": lambda state: {
        "epoch": 3, "loss": torch.tensor(0.3), "optimizer": optimizer_state(), "model_state_dict": state
    },
    "Lightning": lambda state: {"state_dict": prefixed("model.")(state), "epoch": 2, "callbacks": {}},
    "nested": lambda state: {"checkpoint": {"model": prefixed("module.")(state)}},
    "beside an average": lambda state: {"ema": {name: value + 1 for name, value in state.items()}, "model": state},
    "AveragedModel": lambda state: AveragedModel(loaded(plain(), state)).state_dict(),
}  # fmt: skip


def loaded(model: nn.Module, state: State) -> nn.Module:
    model.load_state_dict(state)
    return model


def assert_taken(path: Path, state: State, make: Callable[[], nn.Module] = plain) -> None:
    model = make()
    load_weights(path, model)
    assert different(dict(state), dict(model.state_dict())) == []


@pytest.mark.parametrize("wrapping", WRAPPINGS.values(), ids=WRAPPINGS)
@pytest.mark.parametrize("make", [plain, Around])
def test_a_wrapping_is_understood(
    tmp_path: Path, make: Callable[[], nn.Module], wrapping: Callable[[State], Any]
) -> None:
    state = plain().state_dict()
    torch.save(wrapping(state), tmp_path / "weights.pth")
    assert_taken(tmp_path / "weights.pth", prefixed("model.")(state) if make is Around else state, make)


def test_names_that_fit_as_they_are_are_left_alone(tmp_path: Path) -> None:
    state = Around().state_dict()
    torch.save(state, tmp_path / "weights.pth")
    assert_taken(tmp_path / "weights.pth", state, Around)


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_shared_tensors_may_be_left_out(tmp_path: Path, suffix: str) -> None:
    state = Tied().state_dict()
    saved = {"embedding.weight": state["embedding.weight"]}
    save_file(saved, tmp_path / "a.safetensors")
    torch.save(saved, tmp_path / "a.pth")
    assert_taken(tmp_path / f"a{suffix}", state, Tied)


@pytest.mark.parametrize("suffix", [".safetensors", ".bin", "both"])
def test_a_folder_of_several_files_is_an_archive(tmp_path: Path, suffix: str) -> None:
    state = plain().state_dict()
    halves = dict(list(state.items())[:3]), dict(list(state.items())[3:])
    with zipfile.ZipFile(tmp_path / "weights.zip", "w") as archive:
        archive.writestr("net/model.safetensors.index.json", json.dumps({"weight_map": {}}))
        archive.writestr("__MACOSX/net/._model-00001-of-00002.bin", "no weights")
        for number, half in enumerate(halves, 1):
            name = f"model-0000{number}-of-00002"
            if suffix != ".bin":
                save_file(half, tmp_path / "half")
                archive.write(tmp_path / "half", f"net/{name}.safetensors")
            if suffix != ".safetensors":
                torch.save(half, tmp_path / "half")
                archive.write(tmp_path / "half", f"net/pytorch_{name}.bin")
    assert_taken(tmp_path / "weights.zip", state)


def test_tensors_of_another_kind_are_converted(tmp_path: Path) -> None:
    state = {name: value.half() if value.is_floating_point() else value for name, value in plain().state_dict().items()}
    torch.save(state, tmp_path / "weights.pth")
    model = plain()
    load_weights(tmp_path / "weights.pth", model)
    assert model.state_dict()["0.weight"].equal(state["0.weight"].float())


def other_names(state: State) -> Any:
    return {"model": {name.replace("2.", "head."): value for name, value in state.items()}}


@pytest.mark.parametrize(
    ("saved", "words"),
    [
        (lambda state: plain(), ["torch.nn.modules.container.Sequential", "model.state_dict()"]),
        (lambda state: {"state_dict": state, "args": argparse.Namespace(a=1)}, ["argparse.Namespace"]),
        (lambda state: [1, 2], ["hold a list", "no dict of tensors"]),
        (lambda state: {"epoch": 3}, ["a dict with 'epoch'"]),
        (
            other_names,
            [
                "they lack 2 of the 9 entries: 2.weight (2 x 4), 2.bias (2);",
                "2 of their 9 entries are not in the model: head.weight (2 x 4), head.bias (2)",
            ],
        ),
        (
            lambda state: {**state, "0.weight": torch.zeros(4, 7)},
            ["1 have another shape: 0.weight (4 x 7 there, 4 x 6 here)"],
        ),
        (
            lambda state: {f"layer{number}": torch.zeros(1) for number in range(300)},
            ["they lack 9 of the 9 entries: 0.weight (4 x 6), 0.bias (4), 1.weight (4), …; 300 of their 300 entries"],
        ),
        (lambda state: {"a": state, "b": state}, ["2 models of this kind (a, b)"]),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_told(tmp_path: Path, saved: Callable[[State], Any], words: list[str]) -> None:
    torch.save(saved(plain().state_dict()), tmp_path / "weights.pth")
    with pytest.raises(Refusal) as refused:
        load_weights(tmp_path / "weights.pth", plain())
    said = str(refused.value)
    assert [word for word in words if word not in said] == [], said
    assert len(said) < 400
    assert "\x1b" not in said


def test_a_program_of_torchscript_is_refused(tmp_path: Path) -> None:
    with warnings.catch_warnings(action="ignore"):  # torch.jit is deprecated
        torch.jit.save(torch.jit.trace(nn.Linear(2, 2), torch.zeros(1, 2)), tmp_path / "weights.pth")
    with pytest.raises(Refusal, match="TorchScript"):
        load_weights(tmp_path / "weights.pth", plain())
