"""Weights that other code has saved, for a training to begin with: what the file holds, and how it fits the model.

Wrappers and libraries save the same weights in different ways: DDP and Lightning put `module.` or `model.` before each
name, `torch.compile` puts `_orig_mod.` into it, training scripts save a dict with more beside the weights, and
`save_pretrained` leaves out a tensor that another one shares its memory with, or writes several files.
"""

import io
import pickle
import re
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, load_file

from tidepool.refusal import Refusal

__all__ = ["check_fits", "fitted", "read_weights"]

_COMPILED, _PREFIXES = "_orig_mod.", ("module.", "model.")
#: Entries of a script's dict that hold the weights of its model, those that say so most clearly first.
_ENTRIES = ("state_dict", "model_state_dict", "model_state", "model", "module", "net", "network", "weights")
#: Entry of an AveragedModel that is no weight: the number of its updates.
_AVERAGED = "n_averaged"
_MOST_DEPTH = 3
_MOST_EXAMPLES = 3
#: Suffixes of `save_pretrained`'s files, in an archive of the folder.
_PARTS = (".safetensors", ".bin")
_GLOBAL = re.compile(r"GLOBAL ([\w.]+)")
_SAVE = "save it by torch.save(model.state_dict(), path), and start from that file"


def read_weights(path: Path) -> Any:
    """Return what the file holds, without running anything in it.

    Raises Refusal, with a remedy, for a file that holds more than tensors, numbers and texts or that cannot be read.
    """
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        if parts := _parts_of(path):
            return _joined(path, parts)
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        found = _GLOBAL.search(str(error))
        what = f"an object of the class {found[1]}" if found else "objects of Python"
        raise Refusal(
            f"the initial weights hold {what}, and not only tensors, numbers and texts. A whole model, as of "
            f"torch.save(model), is not loaded, because that would run code of the file: {_SAVE}"
        ) from error
    except (OSError, EOFError, RuntimeError, zipfile.BadZipFile, SafetensorError) as error:
        raise Refusal(f"the initial weights cannot be read: {error}") from error


def fitted(loaded: Any, model: torch.nn.Module) -> dict[str, Any]:
    """Return the model's weights out of what was loaded, by the names that the model has for them.

    Raises Refusal, which says what is there and what is wanted.
    """
    own = model.state_dict()
    found = [(where, weights) for where, weights in _dicts_in(loaded, "") if _fits(weights, own)]
    if found:
        return _renamed(_clearest(found), own)
    holding = [weights for _, weights in _dicts_in(loaded, "") if any(map(torch.is_tensor, weights.values()))]
    if not holding:
        raise Refusal(f"the initial weights hold {_kind_of(loaded)}, and no dict of tensors by name: {_SAVE}")
    best = max(holding, key=lambda weights: (len(_plain(weights).keys() & _plain(own).keys()), len(weights)))
    check_fits(_renamed(best, own), model)
    raise AssertionError("weights that fit were not found")


def check_fits(weights: Any, model: torch.nn.Module, reshaped: Collection[str] = ()) -> None:
    """Raise Refusal if the weights are not those of the model, by its names. reshaped: those of any shape."""
    own = model.state_dict()
    if not isinstance(weights, Mapping):
        raise Refusal("the initial weights are not a dictionary of parameters by name")
    missing = [f"{name} ({_shape(own[name])})" for name in own if name not in weights]
    surplus = [f"{name} ({_shape(weights[name])})" for name in weights if name not in own]
    shaped = [
        f"{name} ({_shape(weights[name])} there, {_shape(own[name])} here)"
        for name in own
        if name in weights and name not in reshaped and _shape(weights[name]) != _shape(own[name])
    ]
    said = [
        _listed(f"they lack {len(missing)} of the {len(own)} entries", missing),
        _listed(f"{len(surplus)} of their {len(weights)} entries are not in the model", surplus),
        _listed(f"{len(shaped)} have another shape", shaped),
    ]
    if any(said):
        raise Refusal(f"the initial weights do not fit this model: {'; '.join(filter(None, said))}")


# --- files ---


def _parts_of(path: Path) -> list[str]:
    """Return the names of the files of weights in an archive; none for a file of torch.save, which is one, too.

    Raises Refusal for a program of TorchScript.
    """
    if not zipfile.is_zipfile(path):
        return []
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    own = {PurePosixPath(name).name for name in names}
    if {"data.pkl", "constants.pkl"} <= own:
        raise Refusal(f"the initial weights are a program of TorchScript, and not a state_dict: {_SAVE}")
    if "data.pkl" in own:
        return []
    parts = [name for name in names if name.endswith(_PARTS) and not PurePosixPath(name).name.startswith(("._", "."))]
    # A folder may have the same weights in both formats.
    return [name for name in parts if name.endswith(_PARTS[0])] or parts


def _joined(path: Path, parts: Iterable[str]) -> dict[str, Any]:
    weights: dict[str, Any] = {}
    with zipfile.ZipFile(path) as archive:
        for name in parts:
            content = archive.read(name)
            safe = name.endswith(_PARTS[0])
            weights |= load(content) if safe else torch.load(io.BytesIO(content), "cpu", weights_only=True)
    return weights


# --- names ---


def _dicts_in(value: Any, where: str, depth: int = 0) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the dicts in what was loaded, and where they are."""
    if not isinstance(value, Mapping) or depth > _MOST_DEPTH:
        return
    yield where, value
    for name, item in value.items():
        yield from _dicts_in(item, f"{where}.{name}" if where else str(name), depth + 1)


def _clearest(found: list[tuple[str, Mapping[str, Any]]]) -> Mapping[str, Any]:
    """Return the one of several dicts that are a model's weights. Raises Refusal if none says so clearly."""
    ranks = {name: place for place, name in enumerate(_ENTRIES)}
    ranked = sorted(found, key=lambda one: ranks.get(one[0].rpartition(".")[2], len(ranks)) if one[0] else -1)
    if len(found) > 1 and ranked[0][0] and ranked[0][0].rpartition(".")[2] not in ranks:
        names = ", ".join(sorted(where for where, _ in found))
        raise Refusal(
            f"the initial weights hold {len(found)} models of this kind ({names}): save the one that is meant"
        )
    return ranked[0][1]


def _fits(weights: Mapping[str, Any], own: Mapping[str, torch.Tensor]) -> bool:
    renamed = _renamed(weights, own)
    return renamed.keys() == own.keys() and all(_shape(renamed[name]) == _shape(own[name]) for name in own)


def _renamed(weights: Mapping[str, Any], own: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Return the weights by the model's names, as far as they only differ by what wrappers have added."""
    there, here = _plain(weights), _plain(own)
    names = {plain: name for plain, name in here.items() if plain in there}
    if len(names) < len(weights.keys() & own.keys()):  # the names fit as they are
        return dict(weights)
    known = {name: weights[there[plain]] for plain, name in names.items()}
    known |= {name: weights[there[plain]] for plain, name in there.items() if plain not in here}
    return known | _shared(known, own)


def _shared(known: Mapping[str, Any], own: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Return the tensors that the model shares with others and that were left out for this reason."""
    holders = {_memory(tensor): name for name, tensor in own.items() if name in known}
    missing = {name: _memory(tensor) for name, tensor in own.items() if name not in known}
    return {name: known[holders[memory]] for name, memory in missing.items() if memory in holders}


def _memory(tensor: Any) -> Any:
    is_held = isinstance(tensor, torch.Tensor) and tensor.numel() > 0
    return (tensor.data_ptr(), tuple(tensor.shape), tensor.stride()) if is_held else object()


def _plain(weights: Collection[str]) -> dict[str, str]:
    """Return the names without what wrappers have added to all of them, each with the name that it has."""
    names = {str(name).replace(_COMPILED, ""): name for name in weights if name != _AVERAGED}
    while found := [prefix for prefix in _PREFIXES if names and all(name.startswith(prefix) for name in names)]:
        names = {name.removeprefix(found[0]): whole for name, whole in names.items()}
    return names


# --- words ---


def _listed(said: str, items: list[str]) -> str:
    if not items:
        return ""
    return f"{said}: {', '.join(items[:_MOST_EXAMPLES])}{', …' if len(items) > _MOST_EXAMPLES else ''}"


def _shape(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return "no tensor" if shape is None else " x ".join(map(str, shape)) or "a single number"


def _kind_of(loaded: Any) -> str:
    if isinstance(loaded, Mapping):
        return f"a dict with {', '.join(map(repr, list(loaded)[:_MOST_EXAMPLES])) or 'nothing'}"
    return f"a {type(loaded).__name__}"
