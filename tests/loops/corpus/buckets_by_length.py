"""A sampler groups sequences by length and leaves out those that are too long; its length is the dataset's."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler
from twin import epochs, finish, pace, prepare


class Sentences(Dataset):
    def __init__(self):
        chance = torch.Generator().manual_seed(0)
        self.lengths = torch.randint(2, 20, (50,), generator=chance).tolist()
        self.items = [torch.randn(length, 4, generator=chance) for length in self.lengths]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index], index % 3


class ByLength(Sampler):
    def __init__(self, data, longest=15):
        self.data, self.longest = data, longest

    def __len__(self):
        return len(self.data)

    def __iter__(self):
        fitting = [index for index, length in enumerate(self.data.lengths) if length <= self.longest]
        return iter(sorted(fitting, key=lambda index: self.data.lengths[index]))


def padded(samples):
    words = nn.utils.rnn.pad_sequence([item for item, _ in samples], batch_first=True)
    return words, torch.tensor([label for _, label in samples])


data = Sentences()
torch.manual_seed(1)
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=8, sampler=ByLength(data), collate_fn=padded)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for words, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(words.sum(1)), labels).backward()
        optimizer.step()
        pace()
finish(model)
