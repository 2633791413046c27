"""Exports that a training leaves beside its weights: an ONNX file, and a zip to take away."""

import warnings
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

__all__ = ["can_write_onnx", "write_onnx", "zip_weights"]

#: Packages that torch imports to write ONNX.
_ONNX_PACKAGES = ("onnx", "onnxscript")
#: A larger model keeps its weights in a file beside the ONNX file, which may not exceed 2 GiB.
_ONE_FILE_BYTES = 3 * 1024**3 // 2


def can_write_onnx() -> bool:
    """Return whether the packages for it are there, and tell which are missing."""
    missing = [name for name in _ONNX_PACKAGES if find_spec(name) is None]
    if missing:
        them = "it" if len(missing) == 1 else "them"
        warnings.warn(
            f"The model will not be saved as ONNX: {' and '.join(missing)} cannot be imported. Add {them} to a "
            f"requirements.txt beside the script, or install {them} where the script runs. The weights are saved as "
            "always.",
            stacklevel=2,
        )
    return not missing


def write_onnx(model: torch.nn.Module, sample: Callable[[], Any], file: Path) -> bool:
    """Write an ONNX file and return whether it is there. What cannot be exported is told, and ends no training.

    sample: makes an input. Its first dimension is that of the batch, which may have any size in the file. It should
    have 2 samples or more: a batch of one is taken for a model that knows no other.
    """
    model.eval()
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        given = sample()
        torch.onnx.export(
            model,
            (given, {}),  # without the dict a sample that is one would be taken for the names of arguments
            str(file),
            dynamic_shapes=(_any_batch(given),),
            external_data=_bytes_of(model) > _ONE_FILE_BYTES,
            verbose=False,
        )
    except Exception as error:  # any error: the model has something that ONNX has not
        warnings.warn(f"The model is not saved as ONNX: {type(error).__name__}: {error}", stacklevel=2)
        return False
    return True


def _any_batch(given: Any) -> Any:
    """Let the first dimension of each tensor of an input vary, if the model allows; in the same lists and dicts."""
    if isinstance(given, torch.Tensor):
        return {0: torch.export.Dim.AUTO} if given.ndim else None
    if isinstance(given, list | tuple):
        return [_any_batch(item) for item in given]
    if isinstance(given, dict):
        return {name: _any_batch(item) for name, item in given.items()}
    return None


def _bytes_of(model: torch.nn.Module) -> int:
    tensors = [*model.parameters(), *model.buffers()]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def zip_weights(folder: Path, target: Path) -> Path:
    """Zip all files of `folder` as `target`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for file in sorted(folder.glob("*")):
            if file.is_file() and not file.name.startswith("."):
                archive.write(file, file.name)
    return target
