"""A mixture of experts: each sample goes to one of them, and some get no sample of a batch."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(6, 4)
        self.experts = nn.ModuleList(nn.Linear(6, 2) for _ in range(4))

    def forward(self, inputs):
        chances = self.gate(inputs).softmax(1)
        outputs = torch.zeros(len(inputs), 2)
        for number in chances.argmax(1).unique().tolist():
            (own,) = (chances.argmax(1) == number).nonzero(as_tuple=True)
            found = self.experts[number](inputs[own]) * chances[own, number, None]
            outputs = outputs.index_add(0, own, found)
        return outputs


torch.manual_seed(1)
model = Mixture()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.02, weight_decay=0.1)
loader = DataLoader(TensorDataset(*tensors(48)), batch_size=4)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(3)):
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()
finish(model)
