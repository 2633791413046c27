"""Check that what cannot be trained elastically is refused when the session is made, not at the first resize."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed
from tidepool.torch import Session
from tidepool.torch.data import sample_count
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.utils.checkpoint import checkpoint


def refused(model: Any, optimizer: Any = None) -> str:
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises((TypeError, ValueError)) as error:
        Session(model, optimizer, effective_batch_size=4)
    return str(error.value)


@pytest.fixture
def process_group() -> Iterator[None]:
    """A real group of one, as a script would have made for itself."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


class OnAGpu(torch.Tensor):
    """Says that it is: there may be none here."""

    device = torch.device("cuda:1")


def layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))


def sharded_by_fsdp2() -> nn.Module:
    mesh = torch.distributed.init_device_mesh("cpu", (1,))
    model: nn.Module = fully_shard(layers(), mesh=mesh)
    return model


def sharded_by_fsdp() -> nn.Module:
    device = torch.device("cpu")
    return FullyShardedDataParallel(layers(), device_id=device, sharding_strategy=ShardingStrategy.NO_SHARD)


def parallel_tensors() -> nn.Module:
    mesh = torch.distributed.init_device_mesh("cpu", (1,))
    return parallelize_module(layers(), mesh, {"0": ColwiseParallel()})


@pytest.mark.parametrize("build", [sharded_by_fsdp2, sharded_by_fsdp, parallel_tensors])
def test_models_that_are_sharded_over_a_mesh(process_group: None, build: Callable[[], nn.Module]) -> None:
    said = refused(build())
    assert "cannot be resized in place" in said
    assert "fixed-size training" in said


def test_models_that_are_wrapped_for_parallel_training(process_group: None) -> None:
    for wrapped in (nn.parallel.DistributedDataParallel(layers()), nn.DataParallel(layers())):
        said = refused(wrapped)
        assert f"the model is wrapped in {type(wrapped).__name__}: pass the bare model" in said


def test_a_process_group_of_the_scripts_own_is_its_own_matter(process_group: None) -> None:
    model = layers()
    session = Session(model, torch.optim.SGD(model.parameters(), lr=0.1), effective_batch_size=4)
    assert list(session.epochs(1)) == [0]


def test_synchronised_batch_norm() -> None:
    model = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    assert "the module '1' is a SyncBatchNorm, which is bound to a process group of fixed size" in refused(model)


def test_models_without_weights_yet() -> None:
    with torch.device("meta"):
        model = layers()
    assert "0.weight is on the meta device" in refused(model)
    lazy = nn.Sequential(nn.LazyLinear(4))
    assert "'0' is lazy" in refused(lazy, torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1))


def test_a_model_on_several_devices() -> None:
    model = layers()
    model.register_buffer("elsewhere", torch.zeros(1).as_subclass(OnAGpu))
    assert "the model is spread over cpu and cuda:1" in refused(model)


def test_optimizers_of_something_else() -> None:
    model, other = layers(), nn.Linear(3, 2)
    said = refused(model, torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.1))
    assert "updates a parameter of shape [2, 3] that is not in the model" in said
    both = [torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.Adam(model[1].parameters())]
    assert "optimizers 'optimizer-0' and 'optimizer-1' both update 1.weight" in refused(model, both)


def test_optimizers_that_do_not_fit_an_elastic_step() -> None:
    model = nn.Embedding(3, 2, sparse=True)
    assert "SparseAdam" in refused(model, torch.optim.SparseAdam(model.parameters()))
    assert "LBFGS" in refused(model, torch.optim.LBFGS(model.parameters()))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "no optimizer was given"),
        ({}, "no optimizer was given"),
        ("adam", "optimizer 'optimizer-0' is a str"),
        (5, "must be one optimizer, a list or a dict of them, not a int"),
        ({"left": nn.Linear(1, 1)}, "optimizer 'left' is a Linear"),
    ],
)
def test_what_is_no_optimizer(given: Any, said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        Session(layers(), given, effective_batch_size=4)


def test_what_is_no_model() -> None:
    model = layers()
    with pytest.raises(TypeError, match=r"must be a torch.nn.Module, not a function"):
        Session(lambda inputs: inputs, torch.optim.SGD(model.parameters(), lr=0.1), effective_batch_size=4)  # type: ignore[arg-type]


def begun(model: nn.Module, body: Callable[[Any, torch.Tensor], Any], optimizer: Any = None) -> None:
    """Make a session of the model, and do `body(step, inputs)` in two epochs of two steps."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    session = Session(model, optimizer, effective_batch_size=4)
    data = torch.utils.data.TensorDataset(torch.ones(8, 4))
    for _ in session.epochs(2):
        for step in session.steps(data):
            for [inputs] in step:
                body(step, inputs)


def test_what_is_left_over_of_a_plain_loop() -> None:
    model = layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def steps_itself(step: Any, inputs: torch.Tensor) -> None:
        optimizer.zero_grad()
        step.backward(model(inputs).mean())
        optimizer.step()

    with pytest.raises(RuntimeError, match=r"remove optimizer.step\(\)"):
        begun(model, steps_itself, optimizer)
    other = layers()
    with pytest.raises(RuntimeError, match=r"call step.backward\(loss\) in a step, not loss.backward\(\)"):
        begun(other, lambda step, inputs: other(inputs).mean().backward())
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 4)))
    with pytest.raises(TypeError, match="pass the dataset, not a DataLoader"):
        sample_count(loader)


def test_a_model_that_changes_after_its_session_was_made() -> None:
    def replaced(model: nn.Sequential) -> None:
        model[1] = nn.Linear(4, 4)

    def converted(model: nn.Sequential) -> None:
        model[0].double()

    for change, name in ((replaced, "1.weight"), (converted, "0.weight")):
        model = layers()

        def body(step: Any, inputs: torch.Tensor, model: Any = model, change: Any = change) -> None:
            step.backward(model(inputs).mean())
            if step.number == 1:
                change(model)

        with pytest.raises(RuntimeError, match=f"{name} was replaced, moved or converted"):
            begun(model, body)


def test_an_optimizer_that_gets_more_parameters_later() -> None:
    model = layers()
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)

    def body(step: Any, inputs: torch.Tensor) -> None:
        step.backward(model(inputs).mean())
        if step.number == 1:
            optimizer.add_param_group({"params": model[1].parameters()})

    with pytest.raises(RuntimeError, match="an optimizer has got other parameters"):
        begun(model, body, optimizer)


def test_gradients_that_come_in_several_parts_later_only() -> None:
    """The first step shows whether buckets can be sent while backward runs."""
    shared = nn.Linear(4, 4)

    def loss(inputs: torch.Tensor, reentrant: bool) -> torch.Tensor:
        hidden = inputs.requires_grad_()
        for _ in range(2):
            hidden = checkpoint(shared, hidden, use_reentrant=reentrant)
        return hidden.mean()

    begun(shared, lambda step, inputs: step.backward(loss(inputs, reentrant=False)))
    another = nn.Sequential(nn.Linear(1, 1).double(), shared)  # two buckets: the first is sent while backward runs
    with pytest.raises(RuntimeError, match="use_reentrant=False"):
        begun(another, lambda step, inputs: step.backward(loss(inputs, reentrant=step.number > 0)))
