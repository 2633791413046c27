"""Sequences of different lengths are padded to the longest of a batch, and masked."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from twin import epochs, finish, pace, prepare


class Sentences(Dataset):
    def __init__(self, count=44):
        chance = torch.Generator().manual_seed(0)
        lengths = torch.randint(2, 9, (count,), generator=chance).tolist()
        self.items = [(torch.randn(length, 5, generator=chance), length % 3) for length in lengths]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def padded(samples):
    words = nn.utils.rnn.pad_sequence([words for words, _ in samples], batch_first=True)
    lengths = torch.tensor([len(words) for words, _ in samples])
    mask = torch.arange(words.shape[1]) < lengths[:, None]
    return {"words": words, "mask": mask, "labels": torch.tensor([label for _, label in samples])}


torch.manual_seed(1)
model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
loader = DataLoader(Sentences(), batch_size=8, collate_fn=padded)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for batch in loader:
        outputs = (model(batch["words"]) * batch["mask"][..., None]).sum(1)
        optimizer.zero_grad()
        nn.functional.cross_entropy(outputs, batch["labels"]).backward()
        optimizer.step()
        pace()
finish(model)
