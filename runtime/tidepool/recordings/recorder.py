"""The rank's part in recordings: one at a time, in a thread of its own."""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from tidepool.protocol import (
    FlameAnswer,
    ProtocolError,
    RecordingKind,
    RecordingProblem,
    RecordingRequest,
    TraceAnswer,
    decode,
)
from tidepool.recordings.flame import record_flame
from tidepool.recordings.native import record_native_flame
from tidepool.recordings.requests import write_answer
from tidepool.recordings.trace import record_trace

__all__ = ["Recorder"]

_Answer = FlameAnswer | TraceAnswer
_RECORDS: Mapping[RecordingKind, Callable[[RecordingRequest, Path], _Answer]] = {
    "flame": lambda request, log_dir: (record_native_flame if request.native else record_flame)(request, log_dir),
    "trace": record_trace,
}


class Recorder:
    """Records what the shim's lines request. Only the thread that reads them calls it."""

    def __init__(self, log_dir: Path) -> None:
        self._log_dir = log_dir
        self._rest = b""
        self._thread: threading.Thread | None = None

    def receive(self, chunk: bytes) -> None:
        """Take bytes of the shim. Lines of another release that are no requests are passed over."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            try:
                self._begin(decode(RecordingRequest, line))
            except ProtocolError:
                continue

    def _begin(self, request: RecordingRequest) -> None:
        if self._thread is not None and self._thread.is_alive():
            write_answer(self._log_dir, _without(request, "busy"))
            return
        self._thread = threading.Thread(target=self._record, args=(request,), name="recording", daemon=True)
        self._thread.start()

    def _record(self, request: RecordingRequest) -> None:
        try:
            answer = _RECORDS[request.kind](request, self._log_dir)
        except Exception as error:  # the training must go on, and who asked is told
            answer = _without(request, "failed", f"{type(error).__name__}: {error}"[:300])
        write_answer(self._log_dir, answer)


def _without(request: RecordingRequest, problem: RecordingProblem, detail: str = "") -> _Answer:
    kind = FlameAnswer if request.kind == "flame" else TraceAnswer
    return kind(request.number, problem, detail)
