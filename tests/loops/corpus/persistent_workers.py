"""Two workers that persist read samples which are dicts of arrays."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from twin import epochs, finish, pace, prepare, tensors


class Arrays(Dataset):
    def __init__(self):
        self.inputs, self.labels = (values.numpy() for values in tensors(44))

    def __len__(self):
        return 44

    def __getitem__(self, index):
        return {"inputs": self.inputs[index], "label": self.labels[index], "name": f"sample {index}"}


torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(Arrays(), batch_size=8, num_workers=2, persistent_workers=True)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(3)):
    for batch in loader:
        assert len(batch["name"]) == len(batch["label"])
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch["inputs"]), batch["label"]).backward()
        optimizer.step()
        pace()
finish(model)
