"""The training of `mlp.py` over the hard NCCL."""

import runpy
from pathlib import Path

import hard_nccl

hard_nccl.install()
runpy.run_path(str(Path(__file__).with_name("mlp.py")), run_name="__main__")
