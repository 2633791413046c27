"""Connectionist temporal classification: the loss is a mean over sequences, each divided by its length."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from twin import epochs, finish, pace, prepare


class Sounds(Dataset):
    def __init__(self, count=40):
        chance = torch.Generator().manual_seed(0)
        self.lengths = torch.randint(2, 5, (count,), generator=chance).tolist()
        self.inputs = torch.randn(count, 12, 5, generator=chance)
        self.labels = [torch.randint(1, 6, (length,), generator=chance) for length in self.lengths]

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        return self.inputs[index], self.labels[index]


def together(samples):
    labels = [label for _, label in samples]
    return torch.stack([inputs for inputs, _ in samples]), torch.cat(labels), torch.tensor([len(one) for one in labels])


torch.manual_seed(1)
model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 6))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
loader = DataLoader(Sounds(), batch_size=8, collate_fn=together)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for inputs, labels, lengths in loader:
        logits = model(inputs).log_softmax(2).transpose(0, 1)
        optimizer.zero_grad()
        nn.functional.ctc_loss(logits, labels, torch.full((len(inputs),), 12), lengths).backward()
        optimizer.step()
        pace()
finish(model)
