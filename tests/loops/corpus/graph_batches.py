"""Graphs are joined to one large graph; edges and the graph of each node are indices."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from twin import epochs, finish, pace, prepare


class Graphs(Dataset):
    def __init__(self, count=40):
        chance = torch.Generator().manual_seed(0)
        self.items = []
        for number in range(count):
            nodes = int(torch.randint(3, 7, (1,), generator=chance))
            edges = torch.randint(0, nodes, (2, 2 * nodes), generator=chance)
            self.items.append((torch.randn(nodes, 4, generator=chance), edges, number % 2))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def joined(graphs):
    begun, edges, graph_of = 0, [], []
    for number, (nodes, links, _label) in enumerate(graphs):
        edges.append(links + begun)
        graph_of += [number] * len(nodes)
        begun += len(nodes)
    labels = torch.tensor([label for _, _, label in graphs])
    return torch.cat([nodes for nodes, _, _ in graphs]), torch.cat(edges, 1), torch.tensor(graph_of), labels


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 12), nn.Linear(12, 2)

    def forward(self, nodes, edges, graph_of, graphs):
        received = torch.zeros_like(nodes).index_add(0, edges[1], nodes[edges[0]])
        hidden = torch.relu(self.first(torch.cat([nodes, received], 1)))
        return self.second(torch.zeros(graphs, 12).index_add(0, graph_of, hidden))


torch.manual_seed(1)
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
loader = DataLoader(Graphs(), batch_size=8, collate_fn=joined)
loader, model, optimizer = prepare(loader, model, optimizer)
for _epoch in epochs(range(4)):
    for nodes, edges, graph_of, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(nodes, edges, graph_of, len(labels)), labels).backward()
        optimizer.step()
        pace()
finish(model)
