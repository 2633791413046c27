"""Print, as a line of JSON, the names of torch for CUDA that `tidepool.torch.comm` uses. No GPU is needed."""

import json
import sys

import torch
from tidepool.torch.comm import nccl
from torch._C._distributed_c10d import HashStore, ProcessGroupNCCL, Work

USED = [
    *("eager_connect_single_device", "_is_initialized", "_comm_ptr", "abort", "shutdown", "shrink"),
    *("allreduce", "alltoall_base", "_allgather_base", "broadcast"),
]


def refusal() -> str:
    """Return why no communicator is made here, for which all of its options have been set before."""
    try:
        nccl.make_backend(HashStore(), 0, 1, nccl.FEW_CHANNELS)
    except ValueError as error:
        return str(error)
    return ""


found = {
    "cuda": torch.version.cuda,
    "nccl": torch.cuda.nccl.version(),
    "signatures": {name: getattr(ProcessGroupNCCL, name).__doc__ for name in USED},
    "work": [name for name in ("is_completed", "exception", "wait") if hasattr(Work, name)],
    "shrinks": hasattr(ProcessGroupNCCL, "supports_shrinking"),
    "refusal": refusal(),
}
sys.stdout.write(json.dumps(found) + "\n")
