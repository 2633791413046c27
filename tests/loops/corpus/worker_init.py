"""Each worker of the loader opens the file of the data for itself in worker_init_fn."""
# outcome: trains

import os
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info
from twin import epochs, finish, pace, prepare, tensors

path = Path(os.environ["RESULT_DIR"]) / f"records-{os.getpid()}"
path.write_bytes(tensors(44, 7)[0].numpy().tobytes())


class Records(Dataset):
    handle = None

    def __len__(self):
        return 44

    def __getitem__(self, index):
        self.handle.seek(index * 28)
        row = torch.frombuffer(bytearray(self.handle.read(28)), dtype=torch.float32)
        return row[:6], row[6:]


def open_for_worker(_number):
    get_worker_info().dataset.handle = path.open("rb")


torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
options = {"num_workers": 1, "worker_init_fn": open_for_worker, "prefetch_factor": 4, "timeout": 60}
loader = DataLoader(Records(), batch_size=8, **options)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(3)):
    for inputs, targets in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
        pace()
finish(model)
