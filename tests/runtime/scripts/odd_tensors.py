"""A loop of its own over a model with complex weights, a memory bank that grows, and numbers of eight bits."""

import argparse
import os
import time
from pathlib import Path

import torch
from tidepool.torch import epochs, prepare
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--step-seconds", type=float, default=0.0, help="draw steps out, until there is a file `hurry`")
parser.add_argument("--out", default=None)
options = parser.parse_args()
data = Path(os.environ.get("DATA_DIR", "."))


class Spectral(nn.Module):
    def __init__(self):
        super().__init__()
        self.filter = nn.Parameter(0.1 * torch.randn(9, dtype=torch.cfloat))
        self.out = nn.Linear(16, 2)
        self.register_buffer("bank", torch.empty(0, 16))
        self.register_buffer("scales", torch.ones(3, dtype=torch.float8_e4m3fn))

    def forward(self, signal):
        filtered = torch.fft.irfft(torch.fft.rfft(signal) * self.filter, n=16)
        if self.training:
            self.bank = torch.cat([self.bank, filtered.detach()])[-60:]
        return self.out(filtered)


torch.manual_seed(3)
model = Spectral()
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
signals = torch.randn(48, 16, generator=torch.Generator().manual_seed(1))
loader = DataLoader(TensorDataset(signals, (signals.sum(1) > 0).long()), batch_size=12, shuffle=True)
loader, model, optimizer = prepare(loader, model, optimizer, seed=7)
for _ in epochs(range(options.epochs)):
    for signal, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(signal), labels).backward()
        optimizer.step()
        if options.step_seconds and not (data / "hurry").exists():
            time.sleep(options.step_seconds)

if options.out:
    torch.save(model.state_dict(), options.out)
