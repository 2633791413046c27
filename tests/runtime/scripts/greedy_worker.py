"""A script whose DataLoader's worker takes memory until there is none left."""

import torch
from torch.utils.data import DataLoader, Dataset


class Greedy(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, place: int) -> torch.Tensor:
        taken = []
        while place == 4:
            taken.append(bytearray(b"x") * (32 << 20))
        return torch.tensor(float(place))


for batch in DataLoader(Greedy(), batch_size=2, num_workers=1):
    print("loss", batch.mean().item())
