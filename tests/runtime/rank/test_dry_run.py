"""The dry run of a joiner's models: it calls them as rank 0 did, and leaves no trace."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tidepool.torch.rank.dry_run import DryRun
from tidepool.torch.state.buffers import Buffers
from tidepool.torch.state.randomness import Generators
from torch import nn


class Words(nn.Module):
    """Embedded words with everything that a forward pass may change; `seen` holds its calls."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embedding, self.norm = nn.Embedding(7, 4), nn.BatchNorm1d(4)
        self.dropout, self.head = nn.Dropout(0.5), nn.Linear(4, 2)
        self.seen: list[Any] = []

    def forward(self, words: torch.Tensor, *, scale: float = 1.0, mask: torch.Tensor | None = None) -> Any:
        self.seen.append((tuple(words.shape), words.dtype, scale, None if mask is None else tuple(mask.shape)))
        random.random()
        hidden = self.norm(self.embedding(words).mean(1))
        return {"logits": self.head(self.dropout(hidden)) * scale, "names": ["a", "b"]}


def loop(folder: Path | None, model: nn.Module, **how: Any) -> Any:
    """What a dry run needs of a training loop."""
    values = {
        "folder": folder,
        "rank": 0,
        "world_size": 1,
        "transitions": SimpleNamespace(all_share=True),
        "reducer": SimpleNamespace(hooks=SimpleNamespace(exist=False)),
        "device": torch.device("cpu"),
        "generators": Generators(torch.device("cpu")),
        "buffers": Buffers(model),
    }
    return SimpleNamespace(**{**values, **how})


def remembered(folder: Path, model: nn.Module, call: Callable[[], object], **how: Any) -> None:
    with DryRun(loop(folder, model, **how), [model]).remembering():
        call()


def trace(model: nn.Module) -> list[torch.Tensor]:
    return [tensor.clone() for tensor in model.state_dict().values()]


WORDS = torch.ones(6, 3, dtype=torch.int64)


def test_a_joiner_calls_its_model_as_the_first_one_did_without_a_trace(tmp_path: Path) -> None:
    first, joiner = Words(), Words()
    remembered(tmp_path, first, lambda: first(WORDS, scale=2.0, mask=torch.ones(6)))
    before, drawn = trace(joiner), (torch.get_rng_state(), random.getstate())

    assert DryRun(loop(tmp_path, joiner), [joiner]).make()
    assert joiner.seen == first.seen == [((6, 3), torch.int64, 2.0, (6,))]
    assert all(one.equal(other) for one, other in zip(trace(joiner), before, strict=True))
    assert torch.get_rng_state().equal(drawn[0])
    assert random.getstate() == drawn[1]
    assert all(parameter.grad is None for parameter in joiner.parameters())


def test_autocast_is_the_first_ones(tmp_path: Path) -> None:
    first, joiner, kinds = nn.Linear(3, 2), nn.Linear(3, 2), []

    def look(_module: nn.Module, _inputs: object) -> None:
        kinds.append((torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")))

    with torch.autocast("cpu", dtype=torch.float16):
        remembered(tmp_path, first, lambda: first(torch.ones(2, 3)))
    joiner.register_forward_pre_hook(look)
    assert DryRun(loop(tmp_path, joiner), [joiner]).make()
    assert kinds == [(True, torch.float16)]


def test_a_compiled_model_is_compiled_before_the_joiner_is_ready(tmp_path: Path) -> None:
    torch.compiler.reset()
    compiled: list[int] = []

    def backend(graph: torch.fx.GraphModule, _: object) -> Any:
        compiled.append(1)
        return graph.forward

    first, bare = nn.Linear(3, 2), nn.Linear(3, 2)
    remembered(tmp_path, first, lambda: first(torch.ones(2, 3)))
    joiner = torch.compile(bare, backend=backend)
    assert DryRun(loop(tmp_path, bare), [joiner]).make()
    made = len(compiled)
    joiner(torch.ones(2, 3)).sum().backward()
    assert made == len(compiled) == 1


def test_of_several_models_each_is_called_as_it_was(tmp_path: Path) -> None:
    models = [Words(), Words()]
    with DryRun(loop(tmp_path, models[0]), models).remembering(), torch.no_grad():
        models[0](WORDS)  # evaluates
        with torch.enable_grad():
            models[1](WORDS, scale=3.0)
            models[1](WORDS[:2])
    joiners = [Words(), Words()]
    assert DryRun(loop(tmp_path, joiners[0]), joiners).make()
    assert joiners[0].seen == []
    assert joiners[1].seen == models[1].seen[:1]


@pytest.mark.parametrize("how", [{"rank": 1}, {"folder": None}, {"transitions": SimpleNamespace(all_share=False)}])
def test_only_the_first_rank_remembers_and_only_whole_shares(tmp_path: Path, how: dict[str, Any]) -> None:
    model = Words()
    with DryRun(loop(**{"folder": tmp_path, "model": model, **how}), [model]).remembering():
        model(WORDS)
    assert [*tmp_path.iterdir()] == []


def test_it_remembers_once_for_each_number_of_ranks(tmp_path: Path) -> None:
    model, shapes = Words(), []
    training_loop = loop(tmp_path, model)
    dry_run = DryRun(training_loop, [model])
    for ranks, samples in ((1, 6), (1, 5), (2, 3)):
        training_loop.world_size = ranks
        with dry_run.remembering():
            model(WORDS[:samples])
        shapes.append(json.loads((tmp_path / "calls.json").read_text())[0]["tensors"][0][1])
    assert shapes == [[6, 3], [6, 3], [3, 3]]


def test_without_a_remembered_call_there_is_none(tmp_path: Path) -> None:
    model = Words()
    assert not DryRun(loop(tmp_path, model), [model]).make()
    remembered(tmp_path, model, lambda: None)
    assert not DryRun(loop(tmp_path, model), [model]).make()


def test_inputs_of_the_scripts_own_classes_are_not_made_up(tmp_path: Path) -> None:
    class Takes(nn.Linear):
        def forward(self, given: Any) -> torch.Tensor:
            return super().forward(given.inputs)

    model = Takes(3, 2)
    remembered(tmp_path, model, lambda: model(SimpleNamespace(inputs=torch.ones(2, 3))))
    assert not (tmp_path / "calls.json").exists()


@pytest.mark.parametrize("watch", ["register_forward_hook", "register_full_backward_hook"])
def test_hooks_of_the_script_see_no_dry_run(tmp_path: Path, watch: str) -> None:
    first, joiner = nn.Linear(3, 2), nn.Linear(3, 2)
    remembered(tmp_path, first, lambda: first(torch.ones(2, 3)))
    seen: list[object] = []
    getattr(joiner, watch)(lambda *_: seen.append(1))
    assert not DryRun(loop(tmp_path, joiner), [joiner]).make()
    assert seen == []


def test_a_model_that_does_not_take_zeros_trains_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Picky(nn.Linear):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            if not inputs.any():
                raise ValueError("there is nothing in this picture")
            return super().forward(inputs)

    first, joiner = Picky(3, 2), Picky(3, 2)
    remembered(tmp_path, first, lambda: first(torch.ones(2, 3)))
    assert not DryRun(loop(tmp_path, joiner), [joiner]).make()
    assert "the dry run of the model failed" in (said := capsys.readouterr().err)
    assert "there is nothing in this picture" in said
