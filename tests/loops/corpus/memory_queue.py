"""A queue of fixed size for negatives, in a buffer, as momentum contrast has it."""
# outcome: differs: each process keeps features of its share

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors


class WithQueue(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 8)
        self.register_buffer("queue", nn.functional.normalize(torch.randn(16, 8)))
        self.register_buffer("place", torch.zeros((), dtype=torch.long))

    def forward(self, inputs):
        features = nn.functional.normalize(self.body(inputs))
        logits = torch.cat([(features * features.detach().roll(1, 0)).sum(1, keepdim=True), features @ self.queue.T], 1)
        with torch.no_grad():
            places = (self.place + torch.arange(len(inputs))) % len(self.queue)
            self.queue = self.queue.index_copy(0, places, features.detach())
            self.place = (self.place + len(inputs)) % len(self.queue)
        return logits


torch.manual_seed(1)
model = WithQueue()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(tensors(44)[0]), batch_size=8)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for (inputs,) in loader:
        logits = model(inputs)
        optimizer.zero_grad()
        nn.functional.cross_entropy(logits, torch.zeros(len(inputs), dtype=torch.long)).backward()
        optimizer.step()
        pace()
finish(model)
