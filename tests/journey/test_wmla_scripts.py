"""Models written for WMLA on the whole stack: resized as they train, they end with the weights of an untouched run."""

import itertools
import re
import shutil
from collections.abc import Iterator

import httpx
import pytest
import torch

from tests.journey.running_stack import RunningStack
from tests.journey.training import Training
from tests.runtime.compat.conftest import EXAMPLE, SCRIPTS, made_idx
from tests.waiting import wait_until

pytestmark = [pytest.mark.journey, pytest.mark.long]

MODELS = {"mnist-edt": (EXAMPLE, "mnist_edt.py"), "newer": (SCRIPTS, "newer.py")}


@pytest.fixture(scope="module")
def api(stack: RunningStack) -> Iterator[httpx.Client]:
    """With the models and the small MNIST registered."""
    with stack.api() as client:
        register(stack, client)
        yield client


def register(stack: RunningStack, client: httpx.Client) -> None:
    made_idx(stack.home / "data" / "mnist")
    dataset = {"name": "mnist", "path": str(stack.home / "data" / "mnist")}
    assert client.post("datasets/", data=dataset).status_code == 201
    for name, (code, script) in MODELS.items():
        folder = stack.home / "models" / name
        # Beside one of them lie scripts that were written for AdaptDL.
        shutil.copytree(code, folder, ignore=shutil.ignore_patterns("adl*"))
        shutil.copy(EXAMPLE / "idx.py", folder)
        model = {"name": name, "framework": "PyTorch", "path": str(folder), "entry_point": script, "engine": "elastic"}
        answer = client.post("models/", json=model)
        assert answer.status_code == 201, answer.text
        assert answer.json()["latest"]["compat"] == ["wmla"], "told from its imports"


def weights_of(training: Training) -> dict[str, torch.Tensor]:
    return torch.load(training.folder / "model/train/model_epoch_final.pth", weights_only=True)


def global_steps(training: Training) -> list[int]:
    [folder] = (training.folder / "log").glob("driver-*")
    assert re.fullmatch(rf"driver-\d{{14}}-{training.id:04}-[0-9a-f-]{{36}}\..+", folder.name)
    return [int(number) for number in re.findall(r"Global steps: (\d+)", (folder / "stdout").read_text())]


@pytest.mark.parametrize(
    ("model", "parameters"),
    [("mnist-edt", {"batchsize": 16, "numWorker": 2, "epochs": 24}), ("newer", {"batch-size": 16})],
)
def test_a_resized_training_ends_with_the_same_weights(
    stack: RunningStack, api: httpx.Client, model: str, parameters: dict[str, int]
) -> None:
    hurry = stack.signals / f"hurry-{model}"  # the example ignores it
    options = {"model": model, "dataset": "mnist", "epochs": 12, "hurry": str(hurry), **parameters}
    resized = Training(api, stack.home, f"{model} resized", max_slots=2, **options)
    resized.wait_for_size(2)
    resized.change(max_slots=1)
    resized.wait_for_size(1)
    done = resized.steps
    wait_until(lambda: resized.steps > done + 5, "some steps on one GPU")
    resized.change(max_slots=2)
    resized.wait_for_size(2)
    done = resized.steps
    wait_until(lambda: resized.steps > done + 5, "some steps on two again")
    hurry.touch()
    resized.wait_for_the_end()
    sizes = [step["world_size"] for step in resized.lines("metrics.jsonl")]
    assert {1, 2} == set(sizes)
    assert len(list(itertools.groupby(sizes))) >= 3, "2, 1 and 2 again"
    untouched = Training(api, stack.home, f"{model} untouched", max_slots=2, **options)
    untouched.wait_for_the_end()
    ends = [weights_of(training) for training in (resized, untouched)]
    for name, tensor in ends[0].items():
        torch.testing.assert_close(tensor, ends[1][name], rtol=1e-3, atol=1e-4)
    if model == "mnist-edt":
        assert global_steps(resized) == list(range(1, sum(sizes) + 1))
    assert (resized.folder / "val_dict_list.json").exists()
    built = resized.folder.with_name(f"wmla-{resized.id}")
    assert built.samefile(resized.folder / "current"), "$DLI_RESULT_FS/$USER/batchworkdir/$DLI_EXECID"
