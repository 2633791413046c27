"""Call, in a rank, the function that came with the training, and leave the value of rank 0.

The script of such a training is `tidepool.function_payload.ENTRY_FILE`. Frames of this file are left out of tracebacks.
"""

import hashlib
import linecache
import os
import pickle
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle

from tidepool.cpu_processes import start_processes
from tidepool.env import is_in_group, result_folder
from tidepool.function_payload import (
    CALL_FACTS,
    CALL_FILE,
    MAX_VALUE_BYTES,
    VALUE_FACTS,
    VALUE_FILE,
    CallFacts,
    ValueFacts,
    same_series,
)
from tidepool.journal import replace_file
from tidepool.rank_process import is_first
from tidepool.units import size_words

__all__ = ["CannotLoad", "CannotReturn", "run"]


class CannotLoad(RuntimeError):
    """The function cannot be loaded here; the message says what differs."""


class CannotReturn(TypeError):
    """The value of the function cannot be sent back; what was written in RESULT_DIR stays."""


def run() -> None:
    """Load the call beside the script, make it, and leave its value if this is rank 0."""
    folder = Path(sys.argv[0]).resolve().parent
    facts = CallFacts.from_text((folder / CALL_FACTS).read_text())
    if facts.cpu_processes > 1 and not is_in_group():
        start_processes([sys.argv[0]], facts.cpu_processes)
    for name, text in facts.sources.items():
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    sys.argv = [facts.name]
    function, arguments, keywords = _loaded(folder / CALL_FILE, facts)
    value = function(*arguments, **keywords)
    if is_first():
        _leave(value, facts.name)


def _loaded(file: Path, facts: CallFacts) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    here = ".".join(platform.python_version_tuple()[:2])
    if facts.python != here:
        raise CannotLoad(f"{facts.name} was sent by Python {facts.python}, and this is {here}: send a script.")
    if not same_series(facts.cloudpickle, cloudpickle.__version__):
        raise CannotLoad(
            f"{facts.name} was sent by cloudpickle {facts.cloudpickle}, and here is {cloudpickle.__version__}: install "
            f"that one (`pip install cloudpickle=={cloudpickle.__version__}`), or send a script."
        )
    content = file.read_bytes()
    if hashlib.sha256(content).hexdigest() != facts.sha256:
        raise CannotLoad(f"{facts.name} has changed on its way: submit it again.")
    try:
        function, arguments, keywords = pickle.loads(content)  # noqa: S301 - in the user's own process
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{error}, which {facts.name} refers to. The cluster does not have it: name its package in requirements, "
            "or send a script with its folder.",
            name=error.name,
        ) from None
    return function, arguments, keywords


def _leave(value: object, name: str) -> None:
    folder = result_folder() or Path(".")
    kind = type(value).__qualname__
    try:
        content = cloudpickle.dumps(value)
    except Exception as error:  # a class may raise anything when it is pickled
        raise CannotReturn(
            f"{name} returned {kind}, which cannot be sent back ({error}). Return plain values, or write it to "
            "RESULT_DIR."
        ) from None
    if len(content) > MAX_VALUE_BYTES:
        raise CannotReturn(
            f"{name} returned {kind} of {size_words(len(content))}, and at most {size_words(MAX_VALUE_BYTES)} "
            "are sent back. Write it to RESULT_DIR and return its name."
        )
    aside = folder / f".{VALUE_FILE}.{os.getpid()}"
    aside.write_bytes(content)
    aside.replace(folder / VALUE_FILE)
    facts = ValueFacts(kind, len(content), hashlib.sha256(content).hexdigest())
    replace_file(folder / VALUE_FACTS, facts.to_json())
