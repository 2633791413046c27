"""A notebook with TorchDistributor and MLflow, from an empty environment to the logged models, by *Connect* alone."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.journey.newcomer import Newcomer
from tests.journey.running_stack import RunningStack
from tests.missing import leave_out
from tests.tracking.clients import server_installed
from tests.waiting import wait_until

pytestmark = [pytest.mark.journey, pytest.mark.long, pytest.mark.timeout(900)]

#: Cells as the documentation of Spark and of MLflow has them: the function imports what it needs in the ranks.
NOTEBOOK = """
get_ipython().run_line_magic("load_ext", "tidepool")
from pyspark.ml.torch.distributor import TorchDistributor


def train(learning_rate, steps=5):
    import os

    import mlflow
    import mlflow.pytorch
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    is_distributed = "RANK" in os.environ
    rank = int(os.environ.get("RANK", "0"))
    if is_distributed:
        dist.init_process_group("gloo")
    torch.manual_seed(7)
    model = torch.nn.Linear(4, 1)
    wrapped = DistributedDataParallel(model) if is_distributed else model
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=learning_rate)
    mlflow.set_experiment("/Users/admin/line")
    if rank == 0:
        mlflow.start_run(run_name="line")
        mlflow.log_param("learning_rate", learning_rate)
    for step in range(steps):
        loss = wrapped(torch.ones(8, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            mlflow.log_metric("square", loss.item(), step=step)
    logged = None
    if rank == 0:
        logged = mlflow.pytorch.log_model(model, name="model").model_uri
        mlflow.end_run()
    if is_distributed:
        del wrapped
        dist.destroy_process_group()
    return logged


models = [train(0.01)]
models.append(TorchDistributor(num_processes=1, local_mode=True, use_gpu=False).run(train, 0.01))
models.append(TorchDistributor(num_processes=2, local_mode=False, use_gpu=True).run(train, 0.01))
import json
print(json.dumps(models))
"""


class _Commands(HTMLParser):
    """The commands that a page hands out."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._is_code = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self._is_code = tag == "pre"
        if tag == "input" and given.get("value"):
            self.found.append(str(given["value"]))

    def handle_data(self, data: str) -> None:
        if self._is_code:
            self.found += data.splitlines()

    def handle_endtag(self, tag: str) -> None:
        self._is_code = False


def commands_of(stack: RunningStack) -> list[str]:
    auth = ("admin", stack.password)
    with httpx.Client(base_url=stack.url, auth=auth, timeout=60, trust_env=False, follow_redirects=True) as browser:
        login = browser.get("/login/")
        [token] = re.findall(r'name="csrfmiddlewaretoken" value="([^"]+)"', login.text)[:1]
        form = {"username": "admin", "password": stack.password, "csrfmiddlewaretoken": token}
        browser.post("/login/", data=form).raise_for_status()
        page = _Commands()
        page.feed(browser.get("/account/connect/").raise_for_status().text)
    return page.found


def one(commands: list[str], words: str) -> str:
    [found] = [line for line in commands if words in line]
    return found


@pytest.fixture(scope="module")
def analyst(stack: RunningStack, tmp_path_factory: pytest.TempPathFactory) -> Newcomer:
    """Somebody with an empty environment, who has typed what *Connect* says, and has IPython."""
    server_installed()
    analyst = Newcomer(tmp_path_factory.mktemp("analyst"), stack)
    # torch is large: it is there, as from a mirror, with what the wheel and the notebook require.
    analyst.has("torch", "numpy", "scipy", "safetensors", "psutil", "msgspec", "setproctitle", "cloudpickle", "click")
    analyst.has("rich", "ipython")
    with httpx.Client(base_url=stack.url, auth=("admin", stack.password), timeout=60, trust_env=False) as client:
        address = "/mlflow/api/2.0/mlflow/experiments/search?max_results=1"
        wait_until(lambda: client.get(address).status_code == 200, "MLflow answers")
    commands = commands_of(stack)
    analyst.says(one(commands, "[torch]"))
    assert "Logged in as admin" in analyst.logs_in(one(commands, "tidepool login http"))
    del analyst.environment["PIP_NO_INDEX"]
    install = one(commands, "mlflow-skinny")
    found = analyst.says(install, codes=(0, 1))
    if found.returncode:
        leave_out(f"MLflow's client cannot be installed: {found.stderr[-500:]}")
    return analyst


def test_the_models_of_a_notebook_are_logged_from_here_and_from_the_ranks(
    stack: RunningStack, analyst: Newcomer
) -> None:
    (analyst.work / "notebook.py").write_text(NOTEBOOK)
    # The stack's own lines of pip configure the requirements of trainings, too.
    logs_in = one(commands_of(stack), "login --mlflow")
    said = analyst.says(f"{logs_in}\npython -m IPython --no-banner notebook.py").stdout
    models = json.loads(said.splitlines()[-1])
    assert len(set(models)) == 3
    for model in models:
        assert logged(stack, model)["name"] == "model"


def logged(stack: RunningStack, uri: str) -> dict[str, Any]:
    with httpx.Client(base_url=stack.url, auth=("admin", stack.password), timeout=60, trust_env=False) as client:
        answer = client.get(f"/mlflow/api/2.0/mlflow/logged-models/{Path(uri).name}")
    return dict(answer.raise_for_status().json()["model"]["info"])
