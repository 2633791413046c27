"""Through the whole product: functions and scripts by TorchDistributor, on two hosts with virtual GPUs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tidepool.client.api import Client
from tidepool.client.errors import JobFailed
from tidepool.distributor import TorchDistributor

from tests.journey.cutting_proxy import CuttingProxy
from tests.journey.running_stack import RunningStack

pytestmark = pytest.mark.journey


@pytest.fixture(scope="module")
def client(stack: RunningStack) -> Iterator[Client]:
    with stack.api() as api:
        token = api.post("me/token/").json()["token"]
    with Client(stack.url, token) as made:
        yield made


class Best:
    """A class of this module, which the ranks do not have."""

    def __init__(self, rank: int, total: int, line: str) -> None:
        self.rank, self.total, self.line = rank, total, line


def _sum_up(start: int) -> Best:
    import time

    import torch
    from pyspark.ml.torch.distributor import TorchDistributor as FromPyspark
    from torch import distributed

    distributed.init_process_group("gloo")
    rank, value = distributed.get_rank(), torch.tensor([start])
    print(f"rank {rank} is here")
    distributed.all_reduce(value)
    distributed.destroy_process_group()
    time.sleep(rank / 4)  # whichever is last, the value is that of rank 0
    return Best(rank, int(value), FromPyspark.__module__)


def _train_elastically() -> tuple[int, int]:
    import torch
    from tidepool.torch import Session

    model = torch.nn.Linear(2, 1)
    session = Session(model, torch.optim.SGD(model.parameters(), 0.1), effective_batch_size=4)
    samples = torch.utils.data.TensorDataset(torch.ones(16, 2), torch.ones(16, 1))
    for _ in session.epochs(1):
        for step in session.steps(samples):
            for inputs, labels in step:
                step.backward(torch.nn.functional.mse_loss(model(inputs), labels))
    return session.rank, session.world_size


def _fail_in_rank(number: int) -> None:
    import os
    import time

    if int(os.environ["RANK"]) == number:
        raise ValueError("too hot")
    time.sleep(600)


def test_a_function_over_both_hosts(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    best = TorchDistributor(6, local_mode=False, client=client).run(_sum_up, 7)
    assert (type(best), best.rank, best.total, best.line) == (Best, 0, 42, "tidepool.distributor")
    assert capsys.readouterr().out == "rank 0 is here\n"


def test_one_process_has_torchruns_variables_too(client: Client) -> None:
    assert TorchDistributor(client=client).run(_sum_up, 7).total == 7


def test_an_elastic_function(client: Client) -> None:
    rank, _ = TorchDistributor(2, min_processes=2, client=client).run(_train_elastically)
    assert rank == 0


def test_the_error_of_one_rank(client: Client) -> None:
    with pytest.raises(JobFailed) as raised:
        TorchDistributor(2, client=client).run(_fail_in_rank, 1)
    error = raised.value
    assert (error.rank, error.kind) == (1, "ValueError")
    assert 'raise ValueError("too hot")' in str(error)
    assert str(error).endswith("ValueError: too hot")


def _fail_everywhere() -> None:
    raise ValueError("too hot")


def _exit_with(code: int) -> None:
    import sys

    sys.exit(code)


def _kill_once(rank: int) -> int:
    """Rank `rank` is killed the first time that it runs; all give how many times they have run."""
    import os
    import signal
    from pathlib import Path

    import torch
    from torch import distributed

    mark = Path.home() / "killed"
    again = mark.exists()
    distributed.init_process_group("gloo")
    distributed.barrier()
    if int(os.environ["RANK"]) == rank and not again:
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    distributed.all_reduce(torch.ones(1))
    distributed.destroy_process_group()
    return 1 + again


def _print_slowly(lines: int) -> None:
    import time

    for number in range(lines):
        print(f"line {number:4} {'x' * 30}", flush=True)
        if number % 50 == 0:
            time.sleep(0.1)


@pytest.mark.long
def test_errors_of_all_ranks_at_once_are_one(client: Client) -> None:
    with pytest.raises(JobFailed) as raised:
        TorchDistributor(4, local_mode=False, client=client).run(_fail_everywhere)
    assert raised.value.rank in range(4)
    assert raised.value.kind == "ValueError"
    assert str(raised.value).count("too hot") == 3  # the message, the line of the function, the end of the traceback


@pytest.mark.long
def test_a_function_that_exits(client: Client) -> None:
    with pytest.raises(JobFailed, match="code 3") as raised:
        TorchDistributor(2, client=client).run(_exit_with, 3)
    assert raised.value.kind == "SystemExit"


@pytest.mark.long
def test_a_function_whose_rank_is_killed_begins_again(client: Client) -> None:
    """SIGKILL is the machine's doing, and no error of the function."""
    job = TorchDistributor(2, client=client).submit(_kill_once, 1)
    assert job.value() == 2
    assert job.refresh().attempt == 2


@pytest.mark.long
def test_lines_arrive_once_through_a_proxy_that_cuts(
    client: Client, stack: RunningStack, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = 200
    with CuttingProxy(stack.port) as proxy, Client(proxy.url, client.profile.token) as through:
        TorchDistributor(client=through).run(_print_slowly, lines)
        cuts = proxy.cuts
    assert capsys.readouterr().out.splitlines() == [f"line {number:4} {'x' * 30}" for number in range(lines)]
    assert cuts > 1


@pytest.mark.parametrize("code", [0, 3])
def test_a_script(client: Client, tmp_path: Path, code: int) -> None:
    script = tmp_path / "once.py"
    script.write_text("import os, sys\nsys.exit(int(sys.argv[1]) if os.environ['RANK'] == '1' else 0)\n")
    made: Any = TorchDistributor(2, client=client)
    if not code:
        assert made.run(str(script), code) is None
        return
    with pytest.raises(JobFailed, match="code 3"):
        made.run(str(script), code)
