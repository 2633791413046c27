"""The collate function returns a named tuple with a PackedSequence."""
# outcome: trains

from collections import namedtuple

import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import DataLoader, Dataset
from twin import epochs, finish, pace, prepare

Batch = namedtuple("Batch", "words labels")


class Sentences(Dataset):
    def __init__(self, count=44):
        chance = torch.Generator().manual_seed(0)
        lengths = torch.randint(2, 9, (count,), generator=chance).tolist()
        self.items = [(torch.randn(length, 5, generator=chance), length % 3) for length in lengths]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def together(samples):
    words = pack_sequence([words for words, _ in samples], enforce_sorted=False)
    return Batch(words, torch.tensor([label for _, label in samples]))


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.GRU(5, 8), nn.Linear(8, 3)

    def forward(self, words):
        _, last = self.rnn(words)
        return self.out(last[-1])


torch.manual_seed(1)
model = Reader()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
loader = DataLoader(Sentences(), batch_size=8, collate_fn=together)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(3)):
    for batch in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch.words), batch.labels).backward()
        optimizer.step()
        pace()
finish(model)
