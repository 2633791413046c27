"""The runtime's promises on CUDA: resizes, deaths and the same weights. They need a GPU; some need several."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tidepool.torch.state.checkpoint_files import write_weights

from tests.runtime.lab import RUNTIME, SCRIPTS, Lab
from tests.runtime.test_failures import assert_nothing_lost
from tests.runtime.test_live_resize import ARGUMENTS
from tests.waiting import wait_until

pytestmark = pytest.mark.gpu

ON_GPU = [*ARGUMENTS, "--device", "cuda"]
#: Several ranks share the first GPU: gloo takes the tensors.
SHARED = {"environment": {"CUDA_VISIBLE_DEVICES": "0"}}
#: Each rank has a GPU of its own: NCCL takes them.
OWN = {"virtual": False}

several_gpus = pytest.mark.skipif(torch.cuda.device_count() < 3, reason="needs three GPUs: NCCL takes one rank on each")
either = pytest.mark.parametrize(
    "places", [SHARED, pytest.param(OWN, marks=several_gpus)], ids=["one GPU, gloo", "GPUs of their own, NCCL"]
)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """Weights of one rank on one GPU that was never interrupted."""
    out = tmp_path_factory.mktemp("reference") / "weights.pth"
    environment = {"PYTHONPATH": str(RUNTIME), "PATH": os.environ["PATH"], "CUDA_VISIBLE_DEVICES": "0"}
    command = [sys.executable, str(SCRIPTS / "mlp.py"), *ON_GPU, "--out", str(out)]
    subprocess.run(command, check=True, env=environment, timeout=300)
    return torch.load(out, weights_only=True, map_location="cpu")


@either
def test_resizes_lose_nothing(
    make_lab: Callable[..., Lab], reference: dict[str, torch.Tensor], places: dict[str, object]
) -> None:
    lab = make_lab("mlp.py", arguments=ON_GPU, sizes={"a": 3}, **places)
    lab.size(1)
    lab.wait_for_steps(3)
    [first] = lab.member_ids()
    for size in (3, 2, 3, 1):
        lab.size(size)
        lab.wait_for_size(size)
        lab.wait_for_steps(2)
    lab.wait_for_the_end()
    assert lab.member_ids() == [first]
    assert_nothing_lost(lab, reference)


@either
@pytest.mark.parametrize("victim", [0, 1])
def test_a_death_loses_nothing(
    make_lab: Callable[..., Lab], reference: dict[str, torch.Tensor], places: dict[str, object], victim: int
) -> None:
    lab = make_lab("mlp.py", arguments=ON_GPU, sizes={"a": 3}, **places)
    lab.size(3)
    lab.wait_for_size(3)
    lab.wait_for_steps(3)
    before = lab.member_ids()
    lab.kill(before[victim])
    wait_until(lambda: before[victim] not in lab.member_ids(), lab.story)
    lab.wait_for_the_end()
    survivors = [member_id for member_id in before if member_id != before[victim]]
    assert lab.member_ids()[:2] == survivors, "those that lived trained on in the same processes"
    assert not lab.journal("lost")
    assert_nothing_lost(lab, reference)


@either
def test_bitwise_means_bitwise(make_lab: Callable[..., Lab], places: dict[str, object]) -> None:
    """BatchNorm and Dropout included: one rank throughout, and one that was joined and left."""
    arguments = ["--device", "cuda", "--slow-until", "resized"]
    launch: dict[str, Any] = {"exactness": "bitwise", "virtual_ranks": 4, **places}
    finals = []
    for sizes in ([1], [1, 3, 2]):
        lab = make_lab("cnn.py", arguments=arguments, sizes={"a": 3}, **launch)
        for size in sizes:
            lab.size(size)
            lab.wait_for_size(size)
            lab.wait_for_steps(2)
        (lab.folder / "resized").touch()
        lab.wait_for_the_end()
        assert len(lab.started()) == max(sizes)
        finals.append(torch.load(lab.folder / "model/train/model_epoch_final.pth", weights_only=True))
    alone, resized = finals
    assert all(torch.equal(alone[name], resized[name]) for name in alone)


def test_a_forkserver_leaves_the_gpu_to_its_ranks(forkserver: Path) -> None:
    """A process whose parent has a CUDA context cannot use CUDA."""
    code = (
        "import torch; from tidepool.torch.warm_parent import warm_up; warm_up(); "
        "assert not torch.cuda.is_initialized()"
    )
    environment = {"PYTHONPATH": str(RUNTIME), "PATH": os.environ["PATH"]}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=120)


def test_weights_load_on_a_machine_without_a_gpu(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2).cuda()
    write_weights(tmp_path, "final", model, {"optimizer": torch.optim.SGD(model.parameters())}, {})
    saved = torch.load(tmp_path / "model/train/final.pth", weights_only=True)
    assert {tensor.device.type for tensor in saved.values()} == {"cpu"}
