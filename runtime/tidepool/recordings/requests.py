"""The shim's part in recordings: it hands each request to its rank once."""

import json
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

from tidepool.journal import replace_file
from tidepool.protocol import FlameAnswer, RecordingProblem, RecordingRequest, TraceAnswer, encode, to_json
from tidepool.shim_slots import RankProcess

__all__ = ["ANSWER_FILES", "TRACE_FILE", "RecordingRequests", "write_answer"]

#: Kind of recording -> name of its answer in the rank's log folder.
ANSWER_FILES = {"flame": "flame.json", "trace": "trace.json"}
#: Name of the trace itself, in Chrome's form, in the same folder.
TRACE_FILE = "trace.pt.json.gz"
_STOPPED = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


class RecordingRequests:
    def __init__(self) -> None:
        #: Number of the newest request; None: none is known, so that the first one is from before the shim's start.
        self._number: int | None = None

    def forward(self, request: RecordingRequest | None, ranks: Iterable[RankProcess]) -> None:
        """Hand the request to the rank that it names, unless one of this number was handed over before."""
        number = 0 if request is None else request.number
        is_new = self._number is not None and number > self._number
        self._number = max(number, self._number or 0)
        if request is None or not is_new:
            return
        for rank in ranks:
            if rank.member_id == request.member_id:
                problem = _hand_over(request, rank)
                if problem:
                    write_answer(rank.log_dir, _answer(request, problem))


def write_answer(log_dir: Path, answer: FlameAnswer | TraceAnswer) -> None:
    """Let this answer replace the former one of its kind."""
    name = ANSWER_FILES["flame" if isinstance(answer, FlameAnswer) else "trace"]
    with suppress(OSError):  # a full disk: nobody gets an answer, which the page says, and the training goes on
        replace_file(log_dir / name, json.dumps(to_json(answer)))


def _hand_over(request: RecordingRequest, rank: RankProcess) -> RecordingProblem:
    """Send the request to the rank. Return why it cannot take it; "": it can."""
    try:
        if psutil.Process(rank.pid).status() in _STOPPED:
            return "stopped"
        rank.connection.send(encode(request), socket.MSG_DONTWAIT)
    except (psutil.NoSuchProcess, OSError):
        return "ended"
    return ""


def _answer(request: RecordingRequest, problem: RecordingProblem) -> FlameAnswer | TraceAnswer:
    kind = FlameAnswer if request.kind == "flame" else TraceAnswer
    return kind(request.number, problem)
