"""A script for `torch.distributed.launch`, which passes LOCAL_RANK as an argument."""

import argparse
import os
from pathlib import Path

import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", "--local-rank", type=int, default=-1)
parser.add_argument("--epochs", type=int, required=True)
arguments = parser.parse_args()
if arguments.local_rank >= 0:
    dist.init_process_group("gloo")
    dist.barrier()
    dist.destroy_process_group()
Path(os.environ["LOG_DIR"], "local_rank").write_text(str(arguments.local_rank))
