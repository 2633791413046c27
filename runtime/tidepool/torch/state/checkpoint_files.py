"""Files of a training's state: a checkpoint's two, and the weights that a training ends with.

A checkpoint is safetensors plus JSON with a sha256, never a pickle. `rank/checkpointer.py` writes checkpoints, and
`coordination/publication.py` publishes them.
"""

import copy
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load
from torch.optim.swa_utils import AveragedModel

from tidepool.torch.state.initial_weights import check_fits, fitted, read_weights
from tidepool.torch.state.training_state import TrainingState, unflatten
from tidepool.torch.state.update import first_of

__all__ = [
    "WEIGHTS_FOLDER",
    "CheckpointError",
    "check_files",
    "load_weights",
    "read_checkpoint",
    "write_files",
    "write_weights",
]

#: Weights as files for `torch.load`, below the folder of an attempt.
WEIGHTS_FOLDER = Path("model", "train")

_TENSORS, _HEADER = "state.safetensors", "state.json"
#: Bytes written and hashed at a time: other threads of the process run in between.
_PIECE = 4 * 1024 * 1024
_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class CheckpointError(ValueError):
    """A checkpoint that cannot be used; the message names it and the reason."""


def write_files(folder: Path, structure: Any, tensors: Sequence[torch.Tensor]) -> tuple[int, str]:
    """Write what `TrainingState.pack` gave into `folder`, through to the disk; size in bytes and sha256 of the tensors.

    The tensors are contiguous and in main memory; they are written from where they lie. Raises OSError.
    """
    folder.mkdir(parents=True)
    digest, size = hashlib.sha256(), 0
    others = {str(n): [_name(t.dtype), list(t.shape)] for n, t in enumerate(tensors) if t.dtype not in _DTYPES}
    with (folder / _TENSORS).open("wb", buffering=0) as raw:
        for piece in _safetensors(tensors):
            digest.update(piece)
            size += len(piece)
            while piece:
                piece = piece[raw.write(piece) :]
        os.fsync(raw.fileno())
    text = json.dumps(structure)
    header: dict[str, Any] = {
        "sha256": digest.hexdigest(),
        "structure": text,
        "structure_sha256": _digest(text.encode()),
    }
    header |= {"bytes_of": others} if others else {}
    with (folder / _HEADER).open("w") as file:
        json.dump(header, file)
        file.flush()
        os.fsync(file.fileno())
    return size, digest.hexdigest()


def check_files(folder: Path, structure: Any, tensors: Sequence[torch.Tensor]) -> None:
    """Raise CheckpointError unless the files hold exactly this."""
    found, read = _read(folder)
    alike = [
        (one.dtype, one.shape) == (other.dtype, other.shape) and one.view(torch.uint8).equal(other.view(torch.uint8))
        for one, other in zip(read, tensors, strict=True)
    ]
    if found != json.loads(json.dumps(structure)) or not all(alike):
        raise CheckpointError(f"the checkpoint {folder.name} does not hold what was written")


def read_checkpoint(path: Path, state: TrainingState) -> None:
    """Load a published checkpoint into `state`.

    Raises CheckpointError if it is incomplete or corrupt, Refusal if it is another model's.
    """
    structure, tensors = _read(path)
    check_fits(_model_of(structure, tensors), state.model, reshaped={name for name, _ in state.model.named_buffers()})
    state.load(structure, tensors)


def load_weights(path: Path, model: torch.nn.Module) -> None:
    """Load a checkpoint's model, or a file of weights, and nothing else. Raises CheckpointError, Refusal."""
    loaded = _model_of(*_read(path)) if path.is_dir() else read_weights(path)
    model.load_state_dict(fitted(loaded, model))


def write_weights(
    results: Path,
    name: str,
    model: torch.nn.Module,
    optimizers: Mapping[str, torch.optim.Optimizer],
    registered: Mapping[str, Any],
) -> None:
    """`<name>.pth` and `<name>_optimizer_state.pth`, whole or not at all. Averaged weights, or whatever module is
    registered, are a result too: `<name>_<registered>.pth`.
    """
    states = {key: optimizer.state_dict() for key, optimizer in optimizers.items()}
    contents: dict[str, Any] = {
        f"{name}.pth": model.state_dict(),
        f"{name}_optimizer_state.pth": states if len(states) > 1 else first_of(states),
    }
    for key, item in registered.items():
        if isinstance(item, torch.nn.Module):
            module = item.module if isinstance(item, AveragedModel) else item
            contents[f"{name}_{key}.pth"] = module.state_dict()
    folder = results / WEIGHTS_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for file_name, content in contents.items():
        torch.save(_in_main_memory(content), folder / f".{file_name}")
        (folder / f".{file_name}").rename(folder / file_name)


def _in_main_memory(value: Any) -> Any:
    """Return the value with its tensors in main memory: a machine without a GPU loads no others."""
    if isinstance(value, torch.Tensor):
        return value.cpu()
    if isinstance(value, dict):
        moved = copy.copy(value)  # with what a state_dict notes beside its items
        moved.update({key: _in_main_memory(item) for key, item in value.items()})
        return moved
    if isinstance(value, list):
        return [_in_main_memory(item) for item in value]
    return value


def _read(path: Path) -> tuple[Any, list[torch.Tensor]]:
    try:
        header = json.loads((path / _HEADER).read_text())
        data = (path / _TENSORS).read_bytes()
        structure = str(header["structure"])
        expected = (header["sha256"], header["structure_sha256"])
        others = dict(header.get("bytes_of", {}))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"the checkpoint {path.name} cannot be read: {error}") from error
    if (_digest(data), _digest(structure.encode())) != expected:
        raise CheckpointError(f"the checkpoint {path.name} is corrupt: its sha256 does not match")
    named: dict[str, torch.Tensor] = load(data)
    named |= {number: named[number].view(getattr(torch, kind)).view(shape) for number, (kind, shape) in others.items()}
    return json.loads(structure), [named[str(number)] for number in range(len(named))]


def _model_of(structure: Any, tensors: list[torch.Tensor]) -> dict[str, Any]:
    saved: dict[str, Any] = unflatten(structure, tensors)["model"]["saved"]
    return saved


def _safetensors(tensors: Sequence[torch.Tensor]) -> list[memoryview]:
    """Return the file's content in pieces: the format's header, then the memory of the tensors, named by their numbers.

    Those of a type that the format does not know are bytes in it.
    """
    entries, end, memories = {}, 0, []
    for number, tensor in enumerate(tensors):
        begin, end = end, end + tensor.numel() * tensor.element_size()
        entries[str(number)] = {
            "dtype": _DTYPES.get(tensor.dtype, "U8"),
            "shape": list(tensor.shape) if tensor.dtype in _DTYPES else [end - begin],
            "data_offsets": [begin, end],
        }
        memories.append(tensor.view(-1).view(torch.uint8).numpy().data)
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    start = memoryview(len(text).to_bytes(8, "little") + text)
    return [start, *(memory[at : at + _PIECE] for memory in memories for at in range(0, len(memory), _PIECE))]


def _name(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
