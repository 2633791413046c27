"""One call of a study's plug-in, in a training of its own: `PluginOptimizer.search` in `optimizer.py`.

A plug-in is written for one process that lives as long as the search. Each call therefore continues with the attributes
and the random numbers of the last one.
"""

import importlib
import json
import logging
import pickle
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tidepool.env import result_folder
from tidepool.search_plugin import ANSWER_FILE, ASK_FILE, STATE_FILE

__all__ = ["run"]


def run() -> None:
    """Ask the plug-in once, and write its proposals and its state."""
    if not Path(ASK_FILE).exists():
        sys.exit("This model is a search algorithm: studies ask it for values, and it cannot be trained.")
    ask = json.loads(Path(ASK_FILE).read_text())
    results = result_folder() or Path()
    logging.basicConfig(stream=sys.stdout, level=ask["log_level"], format="%(levelname)s %(message)s")
    optimizer = _made(ask)
    if ask["state"] is not None:
        _restore(optimizer, Path(ask["state"]))
    proposals = _plain(optimizer.search(ask["samples"], ask["results"]))
    # The answer comes last: the site takes a state only together with an answer.
    _write(results / STATE_FILE, _pickled(optimizer))
    _write(results / ANSWER_FILE, json.dumps({"proposals": proposals}, allow_nan=False).encode())


def _made(ask: Mapping[str, Any]) -> Any:
    base = importlib.import_module("plugins.core.base_plugin_opt").BasePluginOptimizer
    base.objective, base.metric = ask["objective"], ask["metric"]
    found = getattr(importlib.import_module("optimizer"), "PluginOptimizer", None)
    if found is None:
        raise AttributeError("optimizer.py has no class PluginOptimizer")
    return found(ask["name"], ask["hyper_parameters"], **ask["options"])


def _restore(optimizer: Any, file: Path) -> None:
    if not file.exists():
        raise FileNotFoundError("The state of the plug-in's last call is gone: start a new search.")
    kept = pickle.loads(file.read_bytes())  # noqa: S301 - in the user's own process
    if kept["attributes"] is not None:
        optimizer.__dict__.update(kept["attributes"])
    random.setstate(kept["random"])
    if kept["numpy"] is not None:
        importlib.import_module("numpy").random.set_state(kept["numpy"])
    optimizer.set_state(kept["state"])


def _pickled(optimizer: Any) -> bytes:
    """Return the state for the next call. A plug-in with a `get_state` of its own may have what cannot be pickled."""
    kept = {"random": random.getstate(), "numpy": None, "state": optimizer.get_state()}
    if "numpy" in sys.modules:
        kept["numpy"] = sys.modules["numpy"].random.get_state()
    try:
        return pickle.dumps({**kept, "attributes": vars(optimizer)})
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        if "get_state" not in vars(type(optimizer)):
            raise TypeError(f"the plug-in needs get_state and set_state, for it cannot be pickled: {error}") from error
        return pickle.dumps({**kept, "attributes": None})


def _plain(proposals: Any) -> Any:
    """Return the proposals with numbers of numpy as Python's. None, as from a search without `return`, is none."""
    if proposals is None:
        return []
    if not isinstance(proposals, Sequence) or not all(isinstance(point, Mapping) for point in proposals):
        raise TypeError("search() must return a list of dicts, one for each set of values")
    return [{str(name): _python_value(value) for name, value in point.items()} for point in proposals]


def _python_value(value: Any) -> Any:
    return value.item() if hasattr(value, "item") and getattr(value, "shape", None) == () else value


def _write(file: Path, content: bytes) -> None:
    unfinished = file.with_name(f".{file.name}")
    unfinished.write_bytes(content)
    unfinished.replace(file)
