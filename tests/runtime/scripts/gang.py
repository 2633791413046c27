"""A script of a gang: what it sees, and whether its ranks can meet in the way that its first argument names."""

import json
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

way = sys.argv[1]
if way == "session":
    from tidepool.torch import Session

    model = torch.nn.Linear(2, 1)
    session = Session(model, torch.optim.SGD(model.parameters(), lr=0.1), effective_batch_size=4, checkpoint_every=1)
    data = torch.utils.data.TensorDataset(torch.randn(8, 2), torch.randn(8, 1))
    for _ in session.epochs(int(sys.argv[2])):
        for step in session.steps(data):
            for inputs, targets in step:
                step.backward(torch.nn.functional.mse_loss(model(inputs), targets))
elif way == "save":
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])

    def save(number: int, frame: object) -> None:
        Path(os.environ["CHECKPOINT_DIR"], "child").write_text("lives" if child.poll() is None else "is gone")
        sys.exit(0)

    signal.signal(signal.SIGTERM, save)
    print("ready")
    while True:
        time.sleep(0.05)  # a signal just before `signal.pause` would be handled after the next one only
elif way == "plain":
    Path(os.environ["LOG_DIR"], "environment.json").write_text(json.dumps(dict(os.environ)))
else:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if way == "own-store":
        store = dist.TCPStore(
            os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), size, rank == 0, timedelta(seconds=30)
        )
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    else:
        dist.init_process_group("gloo")
    total = torch.tensor([float(rank)])
    dist.all_reduce(total)
    Path(os.environ["LOG_DIR"], "environment.json").write_text(json.dumps(dict(os.environ)))
    Path(os.environ["LOG_DIR"], "total").write_text(str(total.item()))
    while way == "stay" and not Path(os.environ["DATA_DIR"], "go").exists():
        time.sleep(0.05)
    dist.destroy_process_group()
