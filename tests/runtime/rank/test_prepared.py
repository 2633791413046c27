"""A prepared loop on one process equals the same loop without `prepare`, to the bit; and what is refused."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tidepool.torch import Session, epochs, is_first, prepare
from tidepool.torch.rank import prepared
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
)

from tests.runtime.bits import different


@pytest.fixture(autouse=True)
def nothing_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "_prepared", None)
    monkeypatch.setattr(torch.autograd, "backward", torch.autograd.backward)


def parts(**how: Any) -> dict[str, Any]:
    """Return the parts of a script: 22 samples, in their order."""
    generator = torch.Generator().manual_seed(1)
    data = TensorDataset(torch.randn(22, 6, generator=generator), torch.randint(0, 3, (22,), generator=generator))
    torch.manual_seed(2)
    model, other = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)), nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    return {
        "loader": DataLoader(data, **{"batch_size": 4, **how}),
        "model": model,
        "other": other,
        "optimizer": optimizer,
        "second": torch.optim.Adam(other.parameters()),
        "schedule": torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9),
        "scaler": torch.amp.GradScaler("cpu", init_scale=1024.0),
    }


def accumulate(have: dict[str, Any]) -> None:
    """Four batches at a time: of six in an epoch two go on in the next one."""
    for place, (inputs, labels) in enumerate(have["loader"]):
        (cross_entropy(have["model"](inputs), labels) / 4).backward()
        if (place + 1) % 4 == 0:
            have["optimizer"].step()
            have["optimizer"].zero_grad()
    have["schedule"].step()


def flush(have: dict[str, Any]) -> None:
    """The last batch of an epoch ends a group; each batch has two losses."""
    have["optimizer"].zero_grad()
    for place, (inputs, labels) in enumerate(have["loader"]):
        outputs = have["model"](inputs)
        cross_entropy(outputs, labels).backward(retain_graph=True)
        outputs.square().mean().backward()
        if (place + 1) % 4 == 0 or place + 1 == len(have["loader"]):
            nn.utils.clip_grad_norm_(have["model"].parameters(), 0.5)
            have["optimizer"].step()
            have["optimizer"].zero_grad(set_to_none=False)


def flush_behind(have: dict[str, Any]) -> None:
    accumulate(have)
    have["optimizer"].step()
    have["optimizer"].zero_grad()


def leave_early(have: dict[str, Any]) -> None:
    for place, (inputs, labels) in enumerate(have["loader"]):
        have["optimizer"].zero_grad()
        cross_entropy(have["model"](inputs), labels).backward()
        have["optimizer"].step()
        if place == 2:
            break
    have["schedule"].step()


def in_turn(have: dict[str, Any]) -> None:
    """Two optimizers, as of a discriminator and a generator."""
    for inputs, labels in have["loader"]:
        have["second"].zero_grad()
        outputs = have["model"](inputs)
        cross_entropy(have["other"](outputs.detach()), labels).backward()
        have["second"].step()
        have["optimizer"].zero_grad()
        cross_entropy(have["other"](outputs), labels).backward()
        have["optimizer"].step()


def by_closure(have: dict[str, Any]) -> None:
    for inputs, labels in have["loader"]:

        def compute(inputs: torch.Tensor = inputs, labels: torch.Tensor = labels) -> torch.Tensor:
            have["optimizer"].zero_grad()
            loss = cross_entropy(have["model"](inputs), labels)
            loss.backward()
            return loss

        assert have["optimizer"].step(compute) > 0
        have["schedule"].step()


def scaled(have: dict[str, Any]) -> None:
    scaler = have["scaler"]
    for inputs, labels in have["loader"]:
        have["optimizer"].zero_grad()
        scaler.scale(cross_entropy(have["model"](inputs), labels)).backward()
        scaler.unscale_(have["optimizer"])
        nn.utils.clip_grad_norm_(have["model"].parameters(), 0.5)
        scaler.step(have["optimizer"])
        scaler.update()


def evaluated(have: dict[str, Any]) -> None:
    leave_early(have)
    have["model"].eval()
    assert sum(len(labels) for _, labels in have["loader"]) == 22
    have["model"].train()


@pytest.mark.parametrize("loop", [accumulate, flush, flush_behind, leave_early, in_turn, by_closure, scaled, evaluated])
def test_it_does_what_the_loop_did_before(loop: Callable[[dict[str, Any]], None]) -> None:
    plain, ours = parts(), parts()
    for _ in range(3):
        loop(plain)
    used = ["loader", "model", "optimizer", "schedule"]
    used += ["other", "second"] if loop is in_turn else ["scaler"] if loop is scaled else []
    ours |= dict(zip(used, prepare(*(ours[name] for name in used)), strict=True))
    for _ in epochs(range(3)):
        loop(ours)
    states = ({name: have[name].state_dict() for name in used[1:]} for have in (plain, ours))
    assert different(*states) == []
    assert is_first()


def test_a_loader_may_be_made_anew_in_each_epoch() -> None:
    plain, ours = parts(), parts()
    names = ["loader", "model", "optimizer", "schedule"]
    ours |= dict(zip(names, prepare(*(ours[name] for name in names)), strict=True))
    data = ours["loader"].dataset
    for epoch in range(3):
        plain["loader"] = DataLoader(data, batch_size=4, sampler=range(epoch, 22))
        flush(plain)
    for epoch in epochs(range(3)):
        ours["loader"], held_out = prepare(
            DataLoader(data, batch_size=4, sampler=range(epoch, 22)), DataLoader(data, batch_size=7)
        )
        assert len(held_out) == 4
        flush(ours)
    assert different(*({name: have[name].state_dict() for name in names[1:]} for have in (plain, ours))) == []


@pytest.mark.parametrize("first", ["other", "model"])
def test_a_teacher_in_eval_mode_may_be_named_first(first: str) -> None:
    have = parts()
    have["other"].eval().requires_grad_(False)
    models = [have["other"], have["model"]] if first == "other" else [have["model"], have["other"]]
    loader, *_ = prepare(have["loader"], *models, have["optimizer"])
    for inputs, labels in loader:
        cross_entropy(have["other"](have["model"](inputs)), labels).backward()
        have["optimizer"].step()
    assert prepared.current().training_loop.position.step == 6
    have["model"].eval()
    assert len(list(loader)) == 6, "now it is an evaluation"
    assert prepared.current().training_loop.position.step == 6


def test_micro_batches_do_not_change_it() -> None:
    """Check as in a Session: of a batch in several pieces the last one's step counts, and schedules follow it."""
    whole, pieces = parts(batch_size=8, shuffle=True), parts(batch_size=8, shuffle=True)
    session = Session(
        whole["model"],
        whole["optimizer"],
        effective_batch_size=8,
        rank_batch_size=3,
        after_update=whole["schedule"].step,
    )
    for _ in session.epochs(2):
        for step in session.steps(whole["loader"].dataset):
            for inputs, labels in step:
                step.backward(cross_entropy(whole["model"](inputs), labels))
    names = ["loader", "model", "optimizer", "schedule"]
    pieces |= dict(zip(names, prepare(*(pieces[name] for name in names), rank_batch_size=3), strict=True))
    for _ in epochs(range(2)):
        by_closure(pieces)
    assert different(*({name: have[name].state_dict() for name in names[1:]} for have in (whole, pieces))) == []


@pytest.mark.parametrize("of_ours", [True, False], ids=["epochs", "range"])
def test_a_rate_that_is_set_before_an_epochs_first_pass_holds(of_ours: bool) -> None:
    have = parts()
    loader, model, optimizer = prepare(have["loader"], have["model"], have["optimizer"])
    used = []
    for number in epochs(range(2)) if of_ours else range(2):
        optimizer.param_groups[0]["lr"] *= 0.5
        for inputs, labels in loader:
            optimizer.zero_grad()
            cross_entropy(model(inputs), labels).backward()
            optimizer.step()
            used.append((number, optimizer.param_groups[0]["lr"]))
    assert used == [(0, 0.05)] * 6 + [(1, 0.025)] * 6


def test_epochs_without_an_end_are_refused() -> None:
    have = parts()
    prepare(have["loader"], have["model"], have["optimizer"])
    with pytest.raises(RuntimeError, match="at most 1000000 epochs"):
        next(iter(epochs(itertools.count())))


def test_a_sampler_of_ones_own_is_followed() -> None:
    have = parts()
    sampler = WeightedRandomSampler([0.0] * 21 + [1.0], 10)
    loader = DataLoader(have["loader"].dataset, batch_size=4, sampler=sampler, drop_last=True)
    loader, _, _ = prepare(loader, have["model"], have["optimizer"])
    drawn = [inputs for inputs, _ in loader]
    assert len(drawn) == len(loader) == 2
    assert all(row.equal(have["loader"].dataset[21][0]) for row in torch.cat(drawn))


def open_it(worker: int) -> None:
    info = get_worker_info()
    assert info is not None
    info.dataset.opened = worker  # type: ignore[attr-defined]


class Opened(Dataset[Any]):
    """Reads from what its worker has opened."""

    opened: int | None = None

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return torch.full((6,), self.opened), index


def test_workers_begin_as_the_script_says() -> None:
    have = parts()
    loader = DataLoader(Opened(), batch_size=4, num_workers=1, worker_init_fn=open_it, persistent_workers=True)
    loader, _, _ = prepare(loader, have["model"], have["optimizer"])
    assert [labels.tolist() for _ in range(2) for _, labels in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]] * 2


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        yield torch.zeros(6), 0


def twice(have: dict[str, Any]) -> None:
    for _ in range(2):
        prepare(have["loader"], have["model"], have["optimizer"])


class Twofold(DataLoader[Any]):
    def __iter__(self) -> Any:
        for batch in super().__iter__():
            yield batch, batch


def two_sizes(have: dict[str, Any]) -> None:
    prepare(have["loader"], have["model"], have["optimizer"])
    prepare(DataLoader(have["loader"].dataset, batch_size=5))


def at_once(have: dict[str, Any]) -> None:
    loader, _, _ = prepare(have["loader"], have["model"], have["optimizer"])
    other = prepare(DataLoader(have["loader"].dataset, batch_size=4))
    for _ in zip(loader, other, strict=True):
        pass


def unprepared(have: dict[str, Any]) -> None:
    prepare(have["loader"], have["model"], have["optimizer"])
    leave_early(have)


def outside(have: dict[str, Any]) -> None:
    prepare(have["loader"], have["model"], have["optimizer"])
    have["model"](torch.zeros(1, 6)).sum().backward()


def counted_in_pieces(have: dict[str, Any]) -> None:
    have["loader"], *_ = prepare(have["loader"], have["model"], have["optimizer"], rank_batch_size=2)
    accumulate(have)


def in_turn_in_pieces(have: dict[str, Any]) -> None:
    names = ["loader", "model", "other", "optimizer", "second"]
    have["loader"], *_ = prepare(*(have[name] for name in names), rank_batch_size=2)
    in_turn(have)


def with_an_empty_batch(have: dict[str, Any]) -> None:
    batches = DataLoader(have["loader"].dataset, batch_sampler=[[0, 1], [], [2]])
    loader, *_ = prepare(batches, have["model"], have["optimizer"])
    next(iter(loader))


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        (lambda have: prepare(have["model"], have["optimizer"]), TypeError, "DataLoader"),
        (lambda have: prepare(have["loader"], have["model"]), TypeError, "optimizers"),
        (lambda have: prepare(DataLoader(Stream()), have["model"], have["optimizer"]), TypeError, "IterableDataset"),
        (with_an_empty_batch, TypeError, "batch without samples"),
        (lambda have: prepare(have["loader"], have["model"], have["optimizer"], 3), TypeError, "state_dict"),
        (twice, RuntimeError, "once"),
        (two_sizes, ValueError, "batch_size=5.* batch_size=4"),
        (at_once, RuntimeError, "one pass at a time"),
        (unprepared, RuntimeError, "prepare\\(loader\\)"),
        (lambda have: prepare(Twofold(have["loader"].dataset), have["model"], have["optimizer"]), TypeError, "Twofold"),
        (
            lambda have: prepare(DataLoader(have["loader"].dataset, batch_size=None), have["model"], have["optimizer"]),
            TypeError,
            "batch_size=None",
        ),
        (outside, RuntimeError, "outside of a loop"),
        (counted_in_pieces, RuntimeError, "accumulate"),
        (in_turn_in_pieces, RuntimeError, "whole batches"),
        (lambda have: next(iter(epochs(range(3)))), RuntimeError, "prepare first"),
    ],
)
def test_refused(wrong: Callable[[dict[str, Any]], object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        wrong(parts())
