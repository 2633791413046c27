"""Checkpoints: safetensors plus JSON with a sha256, written aside and renamed: a half-written one is never seen."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save

from tidepool.torch.state import TrainingState

__all__ = ["KEPT_CHECKPOINTS", "CheckpointError", "read_checkpoint", "write_checkpoint"]

KEPT_CHECKPOINTS = 2


class CheckpointError(ValueError):
    """A checkpoint that cannot be used; the text names it and says why."""


def write_checkpoint(folder: Path, state: TrainingState) -> dict[str, Any]:
    """Publish the state under `<folder>/step-<n>`; returns what the journal tells about it."""
    structure, tensors = state.pack()
    data = save({str(number): tensor.cpu().contiguous().clone() for number, tensor in enumerate(tensors)})
    digest = _digest(data)
    name = f"step-{state.position.step:09d}"
    aside = folder / f".{name}.{os.getpid()}"
    aside.mkdir(parents=True)
    (aside / "state.safetensors").write_bytes(data)
    header = {"sha256": digest, "structure": structure, "structure_sha256": _digest(structure.encode())}
    (aside / "state.json").write_text(json.dumps(header))
    final = folder / name
    if final.exists():  # the same step again after a failure
        shutil.rmtree(final)
    aside.rename(final)
    for old in sorted(folder.glob("step-*"))[:-KEPT_CHECKPOINTS]:
        shutil.rmtree(old)
    return {"path": str(final), "size_bytes": len(data), "sha256": digest}


def read_checkpoint(path: Path, state: TrainingState) -> None:
    """Load a published checkpoint into `state`. Raises CheckpointError if it is incomplete or corrupt."""
    try:
        header = json.loads((path / "state.json").read_text())
        data = (path / "state.safetensors").read_bytes()
        structure = str(header["structure"])
        expected = (header["sha256"], header["structure_sha256"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"the checkpoint {path.name} cannot be read: {error}") from error
    if (_digest(data), _digest(structure.encode())) != expected:
        raise CheckpointError(f"the checkpoint {path.name} is corrupt: its sha256 does not match")
    named: dict[str, torch.Tensor] = load(data)
    state.unpack(structure, [named[str(number)] for number in range(len(named))])


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
