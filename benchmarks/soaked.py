"""Script whose ranks `soak.py` kills: digits, for a given number of epochs, at a pace that the soak sets.

    soaked.py EPOCHS plain|noisy

`noisy` has layers that look at their batch, buffers, and random numbers. Each step that is further than the number in
the job's file `pace` takes longer than the one before: the training neither stands still while a rank is replaced nor
is over before all have been killed that shall.
"""

import os
import sys
import time

import torch
from networks import SOAKED, digits
from tidepool.torch import Session
from torch.nn.functional import cross_entropy

BATCH = 64
LONGEST_SECONDS, LONGER_SECONDS = 2.0, 0.05
epochs, data = int(sys.argv[1]), digits(os.environ["DATA_DIR"])
torch.manual_seed(0)
model = SOAKED[sys.argv[2]]()
optimizer = torch.optim.Adam(model.parameters(), lr=0.003, weight_decay=0.001)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
session = Session(model, optimizer, effective_batch_size=BATCH, registered={"schedule": schedule})


def keep_pace(step: int) -> None:
    ahead = step - int((session.folder / "pace").read_text())
    if ahead > 0:
        time.sleep(min(LONGEST_SECONDS, LONGER_SECONDS * ahead))


for _ in session.epochs(epochs):
    for step in session.steps(data):
        for images, labels in step:
            step.backward(cross_entropy(model(images), labels))
        keep_pace(step.number)
    schedule.step()
