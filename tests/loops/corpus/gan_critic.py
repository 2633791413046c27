"""A Wasserstein GAN: the critic steps on each batch and is clipped, the generator steps on every third one."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
generator, critic = nn.Linear(4, 6), nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
of_generator = torch.optim.RMSprop(generator.parameters(), lr=0.002)
of_critic = torch.optim.RMSprop(critic.parameters(), lr=0.002)
noise = torch.randn(60, 4, generator=torch.Generator().manual_seed(2))
loader = DataLoader(TensorDataset(tensors(60)[0], noise), batch_size=8)
loader, generator, critic, of_generator, of_critic = prepare(loader, generator, critic, of_generator, of_critic)
for _epoch in epochs(range(3)):
    for place, (real, latent) in enumerate(loader):
        of_critic.zero_grad()
        (critic(generator(latent).detach()).mean() - critic(real).mean()).backward()
        of_critic.step()
        with torch.no_grad():
            for parameter in critic.parameters():
                parameter.clamp_(-0.1, 0.1)
        if place % 3 == 2:
            of_generator.zero_grad()
            (-critic(generator(latent)).mean()).backward()
            of_generator.step()
        pace()
finish(generator, critic)
