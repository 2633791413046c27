"""Search algorithms of users on a stack: each call is a training, and the values that come of it are tried."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.journey.running_stack import RunningStack
from tests.search_plugins import GRID, RANDOM, packed
from tests.waiting import wait_until

pytestmark = [pytest.mark.journey, pytest.mark.timeout(900)]

_BASE = "/platform/rest/deeplearning/v1"
#: Reads its values as scripts for WMLA do; the loss follows from them.
SCRIPT = """
import json, os, pathlib
given = json.loads(pathlib.Path("config.json").read_text())
result = [{"steps": 1, "loss": given["lr"] + given["width"] / 1000}]
pathlib.Path(os.environ["RESULT_DIR"], "val_dict_list.json").write_text(json.dumps(result))
"""
_BROKEN = "from plugins.core.base_plugin_opt import BasePluginOptimizer as PluginOptimizer\n"
_KILLED = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"
_LR: dict[str, Any] = {"name": "lr", "type": "Range", "dataType": "DOUBLE", "minDbVal": 0.01, "maxDbVal": 0.1}
_LISTED: dict[str, Any] = {"name": "lr", "type": "Discrete", "dataType": "DOUBLE", "discreteDbVal": [0.1, 0.2]}
_WIDTH: dict[str, Any] = {"name": "width", "type": "Discrete", "dataType": "INT", "discreteIntVal": [32, 64]}
_UNUSED = {"discreateStrVal": [], "discreteIntVal": [], "discreteDbVal": []}


@pytest.fixture
def wmla(stack: RunningStack) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{stack.url}{_BASE}", timeout=60, auth=("admin", stack.password)) as client:
        yield client


def install(wmla: httpx.Client, name: str, optimizer: str) -> None:
    answer = wmla.post(
        "/hypersearch/algorithm/install",
        data={"data": json.dumps({"name": name})},
        files={"file": (f"{name}.tar", packed(optimizer))},
    )
    assert answer.status_code == 200, answer.text


def searched(wmla: httpx.Client, name: str, rows: list[dict[str, Any]], **limits: int) -> dict[str, Any]:
    """Start a search, and return it once it is over."""
    request = {
        "modelSpec": {"sigName": "sig-elastic", "args": "--exec-start PyTorch --model-main search.py"},
        "algoDef": {
            "algorithm": name,
            "objectiveMetric": "loss",
            "objective": "minimize",
            "algoParams": [{"name": "random_seed", "value": "3"}],
            **limits,
        },
        "hyperParams": [{**_UNUSED, **row} for row in rows],
    }
    answer = wmla.post("/hypersearch", data={"data": json.dumps(request)}, files={"file": ("search.py", SCRIPT)})
    assert answer.status_code == 200, answer.text
    address = f"/hypersearch/{answer.json()}"
    wait_until(lambda: wmla.get(address).json()["state"] not in ("SUBMITTED", "RUNNING"), f"{name} is over")
    over: dict[str, Any] = wmla.get(address).json()
    return over


def test_plug_ins_search_from_their_first_call_to_their_last(stack: RunningStack, wmla: httpx.Client) -> None:
    install(wmla, "drawn", RANDOM)
    over = searched(wmla, "drawn", [_LR, _WIDTH], maxJobNum=3, maxParalleJobNum=2)
    assert (over["state"], over["progress"], over["complete"]) == ("FINISHED", "3/3", 3), over
    assert over["best"]["metricVal"] == min(each["metricVal"] for each in over["experiments"])

    install(wmla, "listed", GRID)
    over = searched(wmla, "listed", [_LISTED, _WIDTH], maxParalleJobNum=3)
    values = [tuple(each["fixedVal"] for each in one["hyperParams"]) for one in over["experiments"]]
    assert sorted(values) == [("0.1", "32"), ("0.1", "64"), ("0.2", "32"), ("0.2", "64")]
    assert (over["state"], over["progress"]) == ("FINISHED", "4/-")

    for name, optimizer, said in (
        ("broken", _BROKEN, "The plug-in broken failed: NotImplementedError: PluginOptimizer has no method search("),
        ("killed", _KILLED, "The plug-in killed failed: A rank was killed (signal 9"),
    ):
        install(wmla, name, optimizer)
        assert searched(wmla, name, [_LR, _WIDTH])["state"] == "FAILED"
        with stack.api() as api:
            newest = api.get("studies/").json()["results"][0]
        assert newest["reason"].startswith(said), newest
