"""A training in the manner of AdaptDL's example of recommendations (NCF): its calls in their order, on random ratings.

Each epoch draws wrong items for every rating, in each replica by itself; the batch grows, and Adam steps.
"""

import argparse
import os
import time
from pathlib import Path

import adaptdl
import adaptdl.torch as adl
import numpy
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--batch_size", type=int, default=64)
parser.add_argument("--dropout", type=float, default=0.1)
parser.add_argument("--autoscale-bsz", action="store_true")
parser.add_argument("--gradient-accumulation", action="store_true")
parser.add_argument("--step-seconds", type=float, default=0.0, help="draw steps out, until there is a file `hurry`")
options = parser.parse_args()
hurry = Path(os.environ.get("DATA_DIR", "."), "hurry")
USERS, ITEMS, WRONG, RANKED = 30, 60, 4, 20
folder = Path(adaptdl.env.share_path(), "models")


class Ratings(torch.utils.data.Dataset):
    def __init__(self, pairs, drawn):
        self.pairs, self.drawn, self.known = pairs, drawn, {tuple(pair) for pair in pairs}
        self.rows = [(user, item, 1) for user, item in pairs]

    def draw(self):
        wrong = []
        for user, _ in self.pairs:
            for _ in range(self.drawn):
                item = numpy.random.randint(ITEMS)
                while (user, item) in self.known:
                    item = numpy.random.randint(ITEMS)
                wrong.append((user, item, 0))
        self.rows = [*((user, item, 1) for user, item in self.pairs), *wrong]

    def __len__(self):
        return (self.drawn + 1) * len(self.pairs)

    def __getitem__(self, index):
        return self.rows[index]


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.users, self.items = nn.Embedding(USERS, 8), nn.Embedding(ITEMS, 8)
        self.layers = nn.Sequential(nn.Dropout(options.dropout), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, user, item):
        return self.layers(torch.cat((self.users(user), self.items(item)), -1)).view(-1)


def hits(model, loader):
    found = []
    for user, item, _label in loader:
        _, places = torch.topk(model(user, item), 5)
        found.append(float(item[0] in item[places]))
    return numpy.mean(found)


draw = numpy.random.default_rng(1)
pairs = sorted({(user, item) for user, item in draw.integers(0, (USERS, ITEMS), (130, 2)).tolist()})
ranked = [(user, int(item)) for user in range(USERS) for item in draw.permutation(ITEMS)[:RANKED]]
train_loader = adl.AdaptiveDataLoader(
    Ratings(pairs, WRONG), batch_size=options.batch_size, shuffle=True, num_workers=1, drop_last=True
)
test_loader = adl.AdaptiveDataLoader(Ratings(ranked, 0), batch_size=RANKED, shuffle=False, num_workers=0)
if options.autoscale_bsz:
    bounds = (16, options.batch_size)
    train_loader.autoscale_batch_size(256, local_bsz_bounds=bounds, gradient_accumulation=options.gradient_accumulation)
torch.manual_seed(3)
network = Network()
adaptdl.torch.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
loss_function = nn.BCEWithLogitsLoss()
optimizer = torch.optim.Adam(network.parameters(), lr=0.003)
network = adl.AdaptiveDataParallel(network, optimizer, find_unused_parameters=True)

best = -1.0
#: A replica that comes at an epoch's end makes no step in it.
told = None
for epoch in adl.remaining_epochs_until(options.epochs):
    network.train()
    train_loader.dataset.draw()
    for user, item, label in train_loader:
        if options.step_seconds and not hurry.exists():
            time.sleep(options.step_seconds)
        network.zero_grad()
        loss_function(network(user, item), label.float()).backward()
        optimizer.step()
        told = network.gain, train_loader.current_batch_size, train_loader.accumulation_steps
    network.eval()
    stats = adl.Accumulator()
    rate = hits(network, test_loader)
    stats["HR"] += rate
    stats["replicas"] += 1.0
    with stats.synchronized():
        print("epoch", epoch, told, stats["replicas"], f"{stats['HR'] / stats['replicas']:.4f}", flush=True)
    if rate > best:
        best = rate
        if adaptdl.env.replica_rank() == 0:
            folder.mkdir(exist_ok=True)
            torch.save(network._state.model, folder / "best.pth")
