"""Batches of texts of like lengths, in an order that is shuffled, by a sampler of the script's own."""
# outcome: trains

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, RandomSampler, Sampler
from twin import epochs, finish, pace, prepare

torch.manual_seed(2)
lengths = torch.randint(2, 9, (40,)).tolist()
texts = [torch.randint(1, 12, (length,)) for length in lengths]
data = [(text, int(text.sum()) % 3) for text in texts]


class ByLength(Sampler):
    """At most 24 tokens a batch."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        batch, most = [], 0
        for index in sorted(self.sampler, key=lambda index: lengths[index]):
            most = max(most, lengths[index])
            if most * (len(batch) + 1) > 24:
                yield batch
                batch, most = [], lengths[index]
            batch.append(index)
        yield batch


def padded(samples):
    return pad_sequence([text for text, _ in samples], batch_first=True), torch.tensor([label for _, label in samples])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(12, 8, padding_idx=0)
        self.head = nn.Linear(8, 3)

    def forward(self, texts):
        return self.head(self.embedding(texts).sum(1))


model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)


sampler = ByLength(RandomSampler(data, generator=torch.Generator().manual_seed(3)))
loader = DataLoader(data, batch_sampler=sampler, collate_fn=padded)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pace()
finish(model)
