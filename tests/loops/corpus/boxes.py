"""Detection: each sample has another number of boxes, and the loss is a mean over all boxes of a batch."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from twin import epochs, finish, pace, prepare, weigh


class Scenes(Dataset):
    def __init__(self, count=44):
        chance = torch.Generator().manual_seed(0)
        self.counts = torch.randint(1, 5, (count,), generator=chance).tolist()
        self.inputs = torch.randn(count, 6, generator=chance)
        self.boxes = [torch.rand(number, 4, generator=chance) for number in self.counts]

    def __len__(self):
        return len(self.counts)

    def __getitem__(self, index):
        return self.inputs[index], {"boxes": self.boxes[index]}


def together(samples):
    return torch.stack([inputs for inputs, _ in samples]), [target for _, target in samples]


torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(Scenes(), batch_size=8, collate_fn=together)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for inputs, targets in loader:
        outputs = model(inputs)
        guesses = torch.cat([one.expand(len(target["boxes"]), 4) for one, target in zip(outputs, targets, strict=True)])
        boxes = torch.cat([target["boxes"] for target in targets])
        weigh(len(boxes))
        optimizer.zero_grad()
        nn.functional.smooth_l1_loss(guesses, boxes).backward()
        optimizer.step()
        pace()
finish(model)
