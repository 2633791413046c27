"""A small GPT that learns the letters of this very file, in plain PyTorch: gradients of four batches, AdamW, cosine."""

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset


class Letters(Dataset):
    """Pieces of the text, `length` + 1 letters each."""

    def __init__(self, text: str, length: int) -> None:
        self.letters = sorted(set(text))
        self.numbers = torch.tensor([self.letters.index(letter) for letter in text])
        self.length = length

    def __len__(self) -> int:
        return len(self.numbers) - self.length

    def __getitem__(self, start: int) -> tuple[torch.Tensor, torch.Tensor]:
        piece = self.numbers[start : start + self.length + 1]
        return piece[:-1], piece[1:]


class GPT(nn.Module):
    def __init__(self, letters: int, length: int, width: int, layers: int) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(letters, width), nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, letters)

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        length = letters.shape[1]
        hidden = self.token(letters) + self.place(torch.arange(length, device=letters.device))
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=letters.device)
        return self.head(self.layers(hidden, mask=mask, is_causal=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--layers", type=int, default=2)
    options = parser.parse_args()

    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    letters = Letters(Path(__file__).read_text(), 32)
    loader = DataLoader(letters, batch_size=options.batch_size, shuffle=True, drop_last=True)
    model = GPT(len(letters.letters), letters.length, options.width, options.layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    steps = options.epochs * len(loader) // options.accumulate
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for epoch in range(options.epochs):
        for place, (inputs, targets) in enumerate(loader):
            outputs = model(inputs.to(device))
            loss = cross_entropy(outputs.flatten(0, 1), targets.to(device).flatten())
            (loss / options.accumulate).backward()
            if (place + 1) % options.accumulate == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        print(f"epoch {epoch} loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
