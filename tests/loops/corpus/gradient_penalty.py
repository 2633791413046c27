"""A critic with a gradient penalty: a backward through gradients."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
generator, critic = nn.Linear(4, 6), nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
of_generator = torch.optim.Adam(generator.parameters(), lr=0.002)
of_critic = torch.optim.Adam(critic.parameters(), lr=0.002)
chance = torch.Generator().manual_seed(2)
data = TensorDataset(tensors(44)[0], torch.randn(44, 4, generator=chance), torch.rand(44, 1, generator=chance))
loader = DataLoader(data, batch_size=8)
loader, generator, critic, of_generator, of_critic = prepare(loader, generator, critic, of_generator, of_critic)
for _epoch in epochs(range(4)):
    for real, latent, share in loader:
        fake = generator(latent).detach()
        between = (share * real + (1 - share) * fake).requires_grad_(True)
        (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        penalty = (slope.norm(dim=1) - 1).square().mean()
        of_critic.zero_grad()
        (critic(fake).mean() - critic(real).mean() + 10 * penalty).backward()
        of_critic.step()
        of_generator.zero_grad()
        (-critic(generator(latent)).mean()).backward()
        of_generator.step()
        pace()
finish(generator, critic)
