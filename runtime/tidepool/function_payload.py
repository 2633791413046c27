"""A function on its way to the ranks and its value on the way back: names of the files, and what is said of them.

Such a training has ENTRY_FILE as its script, and beside it the call: the function with its arguments, pickled. Rank 0
leaves the value in RESULT_DIR. Only the user's own processes unpickle either of them.
"""

import json
from dataclasses import asdict, dataclass
from typing import Self

__all__ = [
    "CALLER",
    "CALL_FACTS",
    "CALL_FILE",
    "ENTRY_FILE",
    "ENTRY_SOURCE",
    "LAUNCHER_SOURCE",
    "MAX_VALUE_BYTES",
    "VALUE_FACTS",
    "VALUE_FILE",
    "CallFacts",
    "ValueFacts",
    "same_series",
]

#: Name and content of the entry point.
ENTRY_FILE = "function.py"
ENTRY_SOURCE = '''\
"""Calls the function that lies beside it."""

from tidepool.function_runner import run

run()
'''
#: Content of an entry point that runs another script in several processes.
LAUNCHER_SOURCE = '''\
"""Runs {script} in {count} processes on the CPUs of one host."""

from tidepool.cpu_processes import run_script

run_script({script!r}, {count})
'''
#: The file, in tracebacks, of what calls a notebook's cell and came with it.
CALLER = "<tidepool>"
CALL_FILE, CALL_FACTS = "call.pkl", "call.json"
VALUE_FILE, VALUE_FACTS = "value.pkl", "value.json"
MAX_VALUE_BYTES = 256 * 1024**2


def same_series(one: str, other: str) -> bool:
    """Return whether two versions of cloudpickle read what each other writes: they differ in the last number at most.

    Versions of a series write the same reducers; another series may name functions that its readers lack.
    """
    return one.split(".")[:2] == other.split(".")[:2]


@dataclass(frozen=True)
class CallFacts:
    """Told without unpickling anything: who loads a call needs the same Python, and cloudpickle of the same series."""

    #: Name of the function, as people call it.
    name: str
    #: Major and minor, such as "3.11".
    python: str
    cloudpickle: str
    #: Digest of CALL_FILE.
    sha256: str
    #: Text of a source that is no file of the cluster's, by the name that a traceback gives it.
    sources: dict[str, str]
    #: Number of processes on the CPUs of the rank's host; 1: the rank itself.
    cpu_processes: int = 1

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Self:
        return cls(**json.loads(text))


@dataclass(frozen=True)
class ValueFacts:
    #: Type of the value, such as "dict" or "__main__.Best".
    type: str
    size_bytes: int
    #: Digest of VALUE_FILE.
    sha256: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Self:
        return cls(**json.loads(text))
