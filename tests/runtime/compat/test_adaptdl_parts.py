"""AdaptDL's names in one process: what each does."""

import itertools
import math
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import adaptdl.torch as adl
import numpy
import pytest
import tidepool.torch.adaptive.batch_chooser
import torch
from adaptdl import _training, checkpoint, collective, env
from adaptdl._distributed import Turn
from adaptdl._loops import shares
from adaptdl.torch import scaling_rules
from adaptdl.torch.data import current_dataloader
from tidepool.torch.state.training_state import BatchChoice
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader

from tests.runtime.bits import different
from tests.runtime.compat.adl_parts import Parts, data, nothing_has_begun


@pytest.fixture(autouse=True)
def beginning() -> Iterator[None]:
    with nothing_has_begun():
        yield


class Writer:
    def __init__(self) -> None:
        self.written: dict[str, float] = {}

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self.written[tag] = value


# --- training ---


def test_one_process_computes_what_plain_pytorch_does() -> None:
    plain, ours = Parts(wrap=False, samples=22), Parts(samples=22)
    for _ in range(3):
        for inputs, targets in plain.loader:
            plain.step(inputs, targets)
        plain.schedule.step()
    for epoch in adl.remaining_epochs_until(3):
        assert adl.current_epoch() == adl.finished_epochs() == epoch
        assert ours.epoch() == [8, 8, 6]
        ours.schedule.step()
    assert (adl.current_epoch(), adl.finished_epochs()) == (None, 3)
    assert different(plain.net.state_dict(), ours.net.module.state_dict()) == []
    assert plain.schedule.state_dict() == ours.schedule.state_dict()


def test_gradients_begin_at_zero_without_zero_grad() -> None:
    once, never = Parts(), Parts.__new__(Parts)
    for _ in adl.remaining_epochs_until(1):
        once.epoch()
    _training.training.cache_clear()
    Parts.__init__(never)
    for _ in adl.remaining_epochs_until(1):
        for inputs, targets in never.loader:
            with pytest.warns(UserWarning, match="does nothing"):
                never.net.zero_grad()
            mse_loss(never.net(inputs), targets).backward()
            never.optimizer.step()
    assert different(once.net.state_dict(), never.net.state_dict()) == []


def test_drop_last_shuffle_and_len() -> None:
    parts = Parts(samples=22, drop_last=True, shuffle=True)
    assert (len(parts.loader), len(adl.AdaptiveDataLoader(data(22), 8))) == (2, 3)
    read = [inputs.clone() for _ in adl.remaining_epochs_until(2) for inputs, _ in parts.loader]
    assert [len(each) for each in read] == [8, 8, 8, 8]
    assert not torch.cat(read[:2]).equal(torch.cat(read[2:]))


def test_epochs_go_on_where_the_last_loop_has_ended() -> None:
    parts, seen = Parts(), []
    for epoch in adl.remaining_epochs_until(2):
        seen.append((epoch, len(parts.epoch())))
        break
    for until in (2, 4):
        for epoch in adl.remaining_epochs_until(until):
            seen.append((epoch, len(parts.epoch())))
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert adl.finished_epochs() == 4


def test_a_loop_may_be_left_and_begun_anew() -> None:
    parts = Parts()
    for _ in adl.remaining_epochs_until(1):
        for inputs, targets in parts.loader:
            parts.step(inputs, targets)
            break
        assert parts.epoch() == [8, 8, 8]


def test_a_loader_tells_what_it_hands_out() -> None:
    parts, held_out = Parts(), adl.AdaptiveDataLoader(data(), 5)
    assert (parts.loader.current_batch_size, parts.loader.current_local_bsz, current_dataloader()) == (None, None, None)
    assert not parts.loader.training
    for inputs, targets in parts.loader:
        parts.step(inputs, targets)
        helper = current_dataloader()
        assert helper is not None
        assert helper is parts.loader._elastic
        assert helper.is_optim_step()
        assert (parts.loader.current_batch_size, parts.loader.current_local_bsz) == (8, 8)
        assert (parts.loader.accumulation_steps, held_out.current_batch_size) == (0, None)
    assert parts.loader.training
    with torch.no_grad():
        assert [len(inputs) for inputs, _ in held_out] == [5, 5, 5, 5, 4]
    assert not held_out.training
    assert isinstance(held_out, DataLoader)
    writer = Writer()
    parts.loader.to_tensorboard(writer, 1, "Data")
    parts.net.to_tensorboard(writer, 1, "Model/")
    sizes = {"Data/Total_Batch_Size": 8, "Data/Local_Batch_Size": 8, "Data/Accumulation_Steps": 0}
    assert writer.written == {**sizes, "Model/Gain": 1.0, "Model/Learning_Rate_Factor": 1.0}


def test_two_models_train_in_one_loop() -> None:
    first, second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in (first, second)]
    before = [net.weight.clone() for net in (first, second)]
    nets = [adl.AdaptiveDataParallel(net, one, name=f"net-{net.out_features}")
            for net, one in zip((first, second), optimizers, strict=True)]  # fmt: skip
    for _ in adl.remaining_epochs_until(1):
        for inputs, targets in adl.AdaptiveDataLoader(data(), 8):
            mse_loss(nets[1](nets[0](inputs)), targets).backward()
            for optimizer in optimizers:
                optimizer.step()
    assert all(not net.weight.equal(old) for net, old in zip((first, second), before, strict=True))


def test_the_snippet_of_the_documentation_trains() -> None:
    text = (Path(__file__).parents[3] / "docs" / "user" / "adaptdl.md").read_text()
    [code] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    net = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    names = {
        "torch": torch, "dataset": data(130), "model": net, "optimizer": optimizer, "loss_fn": mse_loss,
        "scheduler": torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9),
    }  # fmt: skip
    before = net.weight.clone()
    exec(compile(code, "adaptdl.md", "exec"), names)
    assert not net.weight.equal(before)
    assert (adl.finished_epochs(), names["scheduler"].last_epoch) == (30, 30)


# --- a batch that adapts ---


@pytest.fixture
def grown(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the third step on the batch is 16, in two micro-batches."""
    asked = itertools.count()
    monkeypatch.setattr(
        tidepool.torch.adaptive.batch_chooser.BatchChooser,
        "choose",
        lambda *_: BatchChoice(16, 1) if next(asked) >= 1 else BatchChoice(8, 0),
    )


class Halved(scaling_rules.ScalingRuleBase):
    def scale_lr(self, scale: float) -> float:
        return scale / 2


@pytest.mark.parametrize(
    ("rule", "factor"),
    [
        (scaling_rules.LinearScale(), 2.0),
        (scaling_rules.SqrtScale(), math.sqrt(2)),
        (Halved(), 1.0),
        (scaling_rules.LEGWScale(0, 48), math.sqrt(2)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_learning_rates_follow_the_batch(grown: None, rule: scaling_rules.ScalingRuleBase, factor: float) -> None:
    torch.manual_seed(2)
    parts = Parts(samples=48, drop_last=True)
    parts.net.scaling_rule = rule
    rule.initialize(parts.net, parts.optimizer)
    parts.loader.autoscale_batch_size(32, local_bsz_bounds=(4, 8), gradient_accumulation=True)
    assert parts.loader.training
    told = []
    for _ in adl.remaining_epochs_until(1):
        for inputs, targets in parts.loader:
            parts.step(inputs, targets)
            told.append((len(inputs), parts.loader.current_batch_size, parts.loader.accumulation_steps))
        parts.loader.to_tensorboard(writer := Writer(), 0)
    assert {(8, 16, 1)} <= set(told) <= {(4, 8, 0), (8, 8, 0), (8, 16, 1)}
    assert parts.rates[-1] == pytest.approx(0.1 * factor)
    assert parts.optimizer.param_groups[0]["lr"] == 0.1
    assert writer.written == {"Total_Batch_Size": 16, "Local_Batch_Size": 8, "Accumulation_Steps": 1}
    training_loop = _training.training().training_loop
    assert training_loop is not None
    assert training_loop.adaptation is not None
    assert training_loop.adaptation.progress >= 6, "as many steps at the first batch size as the epoch has"
    assert parts.net.gain == training_loop.adaptation.gain


def test_workers_go_on_with_another_pass_before_this_one_is_read_up() -> None:
    parts = Parts(samples=22, drop_last=True, num_workers=1)
    parts.loader.autoscale_batch_size(32)
    for _ in adl.remaining_epochs_until(1):
        assert sum(parts.epoch()) == 24, "three whole batches: the last one is of another pass"


def test_warm_up_of_a_batch_that_stays() -> None:
    parts = Parts()
    parts.net.scaling_rule = rule = scaling_rules.LEGWScale(2, 24)
    rule.initialize(parts.net, parts.optimizer)
    for _ in adl.remaining_epochs_until(3):
        parts.epoch()
    assert parts.rates == pytest.approx([0.1 * min(1, step / 6) for step in range(9)])


def test_rules_by_scale() -> None:
    parts = Parts()
    for rule, wanted in [
        (scaling_rules.LinearScale(), 4.0),
        (scaling_rules.SqrtScale(), 2.0),
        (scaling_rules.AdaScale(), 1.0),
        (scaling_rules.AdamScale(), 1.0),
        (Halved(), 2.0),
    ]:
        with pytest.raises(ValueError, match="scaling_rule"):
            rule.step()
        rule.initialize(parts.net, parts.optimizer)
        assert numpy.allclose(rule.scale_lr(4.0), wanted)
    with pytest.raises(NotImplementedError):
        scaling_rules.ScalingRuleBase().scale_lr(2.0)


def test_the_rule_of_adam_is_a_root() -> None:
    assert isinstance(Parts(adam=True).net.scaling_rule, scaling_rules.AdamScale)


def test_a_rule_in_the_place_of_the_scaler_is_the_rule() -> None:
    """Pass the scaling rule as AdaptDL's example of CIFAR does."""
    net = torch.nn.Linear(4, 1)
    rule = scaling_rules.SqrtScale()
    parallel = adl.AdaptiveDataParallel(net, torch.optim.SGD(net.parameters(), lr=0.1), None, rule)
    assert (parallel.scaling_rule, parallel._state.mp_scaler) == (rule, None)


def test_a_scaler_is_the_trainings_and_skips_what_is_not_finite() -> None:
    torch.manual_seed(2)
    net = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    loader = adl.AdaptiveDataLoader(data(32), 8)
    parallel = adl.AdaptiveDataParallel(net, optimizer, mp_scaler=scaler)
    plain = Parts(wrap=False, samples=32)
    weights, scales = [], []
    for _ in adl.remaining_epochs_until(1):
        for place, (inputs, targets) in enumerate(loader):
            optimizer.zero_grad()
            loss = mse_loss(parallel(inputs), targets) * (math.inf if place == 2 else 1.0)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            weights.append(net.weight.detach().clone())
            scales.append(scaler.get_scale())
    assert scales == [1024.0, 1024.0, 512.0, 512.0]
    assert weights[2].equal(weights[1])
    for place, (inputs, targets) in enumerate(plain.loader):
        if place != 2:
            plain.step(inputs, targets)
    assert torch.allclose(plain.net.weight, net.weight, atol=1e-6)


# --- accumulators ---


def test_an_accumulator_is_read_when_it_is_synchronized() -> None:
    stats = adl.Accumulator(seen=1)
    stats["loss"] += 1.5
    stats["loss"] -= 0.5
    stats += {"count": 2}
    stats -= {"count": 1}
    stats.update(loss=torch.tensor(1.0))
    stats.subtract({"count": 4})
    assert (len(stats), "loss" in stats, repr(stats), dict(stats)) == (0, False, "{}", {})
    with stats.synchronized():
        assert dict(stats) == {"seen": 1, "loss": 2.0, "count": -3}
        stats["mean"] = stats["loss"] / 2
        with stats.synchronized():
            assert stats["mean"] == 1.0
        del stats["mean"]
        stats.clear()
    stats["loss"] += 1
    with stats.synchronized():
        assert dict(stats) == {"loss": 1}


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        (lambda one, other: one.__setitem__("a", 5), TypeError, "outside of synchronized"),
        (lambda one, other: one.__setitem__("a", other["a"]), ValueError, "another accumulator"),
        (lambda one, other: one.__setitem__("a", one["b"] + 1), ValueError, "or key"),
        (lambda one, other: one["a"] + other["a"], TypeError, "add numbers"),
    ],
)
def test_an_accumulator_refuses(wrong: Callable[[Any, Any], None], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        wrong(adl.Accumulator(), adl.Accumulator())


# --- states and sums ---


class Number(checkpoint.State):
    def __init__(self, name: str, value: int = 0) -> None:
        super().__init__(name)
        self.value = self.synced = value

    def save(self, fileobj: Any) -> None:
        fileobj.write(str(self.synced).encode())

    def load(self, fileobj: Any) -> None:
        self.value = int(fileobj.read())

    def sync(self) -> None:
        self.synced = self.value


def test_states_are_saved_and_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    number = Number("number", 3)
    assert not checkpoint.load_state(number)
    assert checkpoint.save_all_states() is None, "there is no folder for it"
    monkeypatch.setenv("ADAPTDL_CHECKPOINT_PATH", str(tmp_path))
    number.value = 7
    assert checkpoint.save_all_states() == str(tmp_path)
    with pytest.raises(ValueError, match="already"):
        Number("number")
    with pytest.raises(ValueError, match="file"):
        Number("a/b")
    _training.training.cache_clear()
    again, other = Number("number"), Number("other")
    assert (checkpoint.load_state(again), checkpoint.load_state(other), again.value) == (True, False, 7)
    checkpoint.save_state(again, str(tmp_path / "own"))
    assert (tmp_path / "own" / "number").read_text() == "7"


def test_a_checkpoint_in_a_loop_is_gone_on_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADAPTDL_CHECKPOINT_PATH", str(tmp_path))
    undisturbed = Parts()
    for _ in adl.remaining_epochs_until(2):
        undisturbed.epoch()
    _training.training.cache_clear()
    parts = Parts()
    for epoch in adl.remaining_epochs_until(2):
        for place, (inputs, targets) in enumerate(parts.loader):
            if (epoch, place) == (1, 1):
                checkpoint.save_all_states()
            parts.step(inputs, targets)
            if (epoch, place) == (0, 1):
                with pytest.raises(RuntimeError, match="middle of a step"):
                    checkpoint.save_all_states()
    _training.training.cache_clear()
    again, sizes = Parts(), []
    for _ in adl.remaining_epochs_until(2):
        sizes += again.epoch()
    assert sizes == [8, 8]
    assert different(undisturbed.net.state_dict(), again.net.state_dict()) == []


def test_sums_of_one() -> None:
    for call in (lambda: collective.allreduce(1), lambda: collective.broadcast(1), collective.teardown):
        with pytest.raises(RuntimeError, match="not initialized"):
            call()
    adl.init_process_group("gloo")
    with pytest.raises(RuntimeError, match="once"):
        collective.initialize()
    assert collective.allreduce({"a": 1}, lambda a, b: {**a, **b}) == {"a": 1}
    assert (collective.allreduce(3), collective.allreduce_async(4).result(), collective.broadcast("x")) == (3, 4, "x")
    collective.teardown()
    collective.initialize("0.0.0.0")
    with pytest.raises(ValueError, match="tcp://host:port"):
        adl.init_process_group("gloo", init_method="env://")


@pytest.mark.parametrize(
    ("place", "meeting"),
    [("tcp://gpu1:29500", ("gpu1", 29500)), ("tcp://[fd00::1]:29500", ("fd00::1", 29500))],
)
def test_the_place_where_replicas_meet(place: str, meeting: tuple[str, int]) -> None:
    assert adl._meeting(place) == meeting


def test_who_is_asked_off_a_cluster() -> None:
    nothing = [env.checkpoint_path, env.share_path, env.job_id, env.adaptdl_sched_version, env.supervisor_url]
    assert [ask() for ask in nothing] == [None] * 5
    assert (env.master_addr(), env.master_port(), env.replica_rank(), env.num_nodes()) == ("0.0.0.0", 0, 0, 1)
    assert (env.num_replicas(), env.num_restarts(), env.from_ray()) == (1, 0, False)


def test_variables_are_asked_off_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"NUM_REPLICAS": "4", "NUM_NODES": "2", "REPLICA_RANK": "3", "NUM_RESTARTS": "5", "SHARE_PATH": "/s"}
    for name, value in values.items():
        monkeypatch.setenv(f"ADAPTDL_{name}", value)
    assert (env.num_replicas(), env.num_nodes(), env.replica_rank(), env.num_restarts()) == (4, 2, 3, 5)
    assert env.share_path() == "/s"


def test_functions_of_torch_distributed_are_the_trainings() -> None:
    adl.init_process_group("gloo")
    torch.distributed.barrier()
    assert torch.distributed.is_initialized()
    assert (torch.distributed.get_rank(), torch.distributed.get_world_size()) == (0, 1)
    with pytest.raises(RuntimeError, match=r"use adaptdl\.collective"):
        torch.distributed.all_reduce(torch.zeros(1))
    torch.distributed.destroy_process_group()


def test_one_process_at_a_time_prepares_files_until_one_has_come_through(tmp_path: Path) -> None:
    first, second = Turn(tmp_path, 1), Turn(tmp_path, 1)
    first.take()
    first.take()
    waiting = threading.Thread(target=second.take)
    waiting.start()
    assert not (tmp_path / ".adaptdl-1.done").exists()
    first.give()
    waiting.join(10)
    assert not waiting.is_alive()
    Turn(tmp_path, 1).take()  # at once


# --- division of samples ---


@pytest.mark.parametrize(
    ("samples", "size", "ranks"), [(101, 20, 1), (101, 20, 3), (100, 20, 2), (7, 20, 3), (2, 1, 5)]
)
def test_shares_of_an_evaluation(samples: int, size: int, ranks: int) -> None:
    spans = shares(samples, size, ranks, drops_last=False)
    assert sorted(place for _, first, last in spans for place in range(first, last)) == list(range(samples))
    counts = Counter(rank for rank, _, _ in spans)
    assert max(counts.values()) - min(counts[rank] for rank in range(ranks)) <= 1
    assert all(first % size == 0 for _, first, _ in spans[: samples // (size * ranks) * ranks])
    assert max((last for *_, last in shares(samples, size, ranks, drops_last=True)), default=0) in {
        samples, samples - samples % size
    }  # fmt: skip


@pytest.mark.parametrize("replicas", [1, 3, 5])
@pytest.mark.parametrize("index", [0, 12, 50])
def test_the_elastic_sampler(replicas: int, index: int) -> None:
    drawn: Counter[int] = Counter()
    for rank in range(replicas):
        sampler = adl.ElasticSampler(data(25))
        sampler.num_replicas, sampler.rank = replicas, rank
        sampler.set_epoch(3, index)
        own = list(sampler)
        assert own == list(sampler)
        assert len(own) == len(sampler) == math.ceil((25 - index % 25) / replicas)
        drawn.update(own)
    assert len(drawn) >= 25 - index % 25
    assert max(drawn.values()) <= 2
