"""Once for real: a package of an index, with the files that it writes. Takes as long as the network does."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.waiting import wait_until
from workers.executor.curves.growing_files import EventSource
from workers.executor.environments.cache import Environments, Failed, Ready

WRITES = """
import sys, torch, tensorboard
from torch.utils.tensorboard import SummaryWriter
writer = SummaryWriter(sys.argv[1])
for step in range(3):
    writer.add_scalar("train/loss", 0.5 * step, step)
    writer.add_scalar("new_style", 2.0 * step, step, new_style=True)
    writer.add_histogram("weights", torch.ones(10), step)
writer.close()
print(torch.__file__)
"""


@pytest.mark.long
def test_tensorboard_of_an_index_beside_the_clusters_torch(tmp_path: Path) -> None:
    environments, log = Environments(tmp_path / "environments", dict(os.environ)), tmp_path / "stdout"
    wait_until(lambda: environments.ask((1, 1), "tensorboard", log) is not None)
    answer = environments.ask((1, 1), "tensorboard", log)
    if isinstance(answer, Failed) and "error sending request" in answer.why:
        pytest.skip("no package index can be reached from here")
    assert isinstance(answer, Ready), answer
    assert not list(Path(answer.folder).glob("lib/*/site-packages/torch*"))
    python = f"{answer.folder}/bin/python"
    said = subprocess.run([python, "-c", WRITES, str(tmp_path / "runs")], capture_output=True, text=True, check=True)
    assert not said.stdout.startswith(answer.folder)
    [events] = (tmp_path / "runs").iterdir()
    file = os.open(events, os.O_RDONLY)
    points = EventSource("runs/events").read(file, None, is_last=True)
    os.close(file)
    assert [(point.step, point.metrics) for point in points] == [
        (step, {name: value * step}) for step in range(3) for name, value in (("train/loss", 0.5), ("new_style", 2.0))
    ]
