"""CIFAR-10 with a small residual network, as a model of IBM WMLA's screens: the form says how it is trained.

Optimizer, learning rate, epochs and batch size come from the model's form by `pth_parameter_mgr`. Runs unchanged by
`python elastic-main.py` with the dataset in DATA_DIR (one process), and as a Tidepool job on any number of GPUs.
"""

import argparse
import sys
from pathlib import Path

import torch
from cifar import TESTING, TRAINING, read
from fabric_model import FabricModel
from small_resnet import SmallResNet
from torch.nn import functional
from torch.utils.data import Dataset

#: The most GPUs that it makes sense on; the training itself may be allowed fewer.
MOST_GPUS = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train_dir", default="", help="where the trained weights go")
    parser.add_argument("--weights", default="", help="folder with weights to begin with")
    options, _ = parser.parse_known_args()
    # WMLA puts the module with the form's values beside the folder for the weights.
    sys.path.insert(0, str(Path(options.train_dir, "..")))
    import pth_parameter_mgr

    def datasets() -> tuple[Dataset, Dataset]:
        """Called on each rank: the training and the held-out split."""
        training = read(pth_parameter_mgr.getTrainData(False), TRAINING)
        return training, read(pth_parameter_mgr.getTestData(False), TESTING)

    torch.manual_seed(1)
    model = SmallResNet()
    optimizer = pth_parameter_mgr.getOptimizer(model)
    fabric = FabricModel(model, datasets, functional.cross_entropy, optimizer)
    fabric.train(pth_parameter_mgr.getEpoch(), pth_parameter_mgr.getTrainBatchSize(), MOST_GPUS)


if __name__ == "__main__":
    main()
