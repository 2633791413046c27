"""A spectral layer with complex weights, as in Fourier neural operators."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors


class Spectral(nn.Module):
    def __init__(self, size=32, modes=8):
        super().__init__()
        self.modes = modes
        self.weights = nn.Parameter(0.1 * torch.randn(modes, dtype=torch.cfloat))
        self.out = nn.Linear(size, size)

    def forward(self, signal):
        spectrum = torch.fft.rfft(signal)
        kept = torch.zeros_like(spectrum)
        kept[:, : self.modes] = spectrum[:, : self.modes] * self.weights
        return self.out(torch.fft.irfft(kept, n=signal.shape[-1]))


torch.manual_seed(1)
inputs, _ = tensors(48, 32)
model = Spectral()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(inputs, inputs.roll(3, 1)), batch_size=16)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(5)):
    for signal, target in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(signal), target).backward()
        optimizer.step()
        pace()
finish(model)
