"""A GAN: discriminator and generator step in turns on each batch, each with its optimizer."""
# outcome: trains

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from twin import epochs, finish, pace, prepare, tensors

torch.manual_seed(1)
generator = nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.2), nn.Linear(16, 6))
discriminator = nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
of_generator = torch.optim.Adam(generator.parameters(), lr=0.002, betas=(0.5, 0.999))
of_discriminator = torch.optim.Adam(discriminator.parameters(), lr=0.002, betas=(0.5, 0.999))
noise = torch.randn(44, 4, generator=torch.Generator().manual_seed(2))
loader = DataLoader(TensorDataset(tensors(44)[0], noise), batch_size=8)
prepared = prepare(loader, generator, discriminator, of_generator, of_discriminator)
loader, generator, discriminator, of_generator, of_discriminator = prepared
criterion = nn.BCEWithLogitsLoss()
for _epoch in epochs(range(4)):
    for real, latent in loader:
        of_discriminator.zero_grad()
        criterion(discriminator(real), torch.ones(len(real), 1)).backward()
        fake = generator(latent)
        criterion(discriminator(fake.detach()), torch.zeros(len(real), 1)).backward()
        of_discriminator.step()
        of_generator.zero_grad()
        criterion(discriminator(fake), torch.ones(len(real), 1)).backward()
        of_generator.step()
        pace()
finish(generator, discriminator)
