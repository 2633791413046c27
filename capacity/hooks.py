"""A call of a fleet's command: one JSON object on its standard input, one on its standard output.

A call blocks nobody: it is looked at in each turn of the autoscaler, and ended with all that it started once its time
is over.
"""

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

import msgspec

__all__ = ["Answer", "HookCall", "HookFailed", "answer_of"]

_MOST_BYTES = 1024**2
_MOST_WORDS = 300


class Answer(msgspec.Struct, frozen=True):
    """What a command says."""

    #: Number of hosts that come or go; None: as many as were asked for.
    count: int | None = None
    #: A sentence for people.
    message: str = ""


@dataclass(frozen=True)
class HookFailed(Exception):
    """The command did not do it; the sentence says what it did instead."""

    sentence: str

    def __str__(self) -> str:
        return self.sentence


class HookCall:
    """A running command."""

    def __init__(self, command: Sequence[str], request: Mapping[str, Any], *, timeout_seconds: float) -> None:
        """Start the command. Raises HookFailed if that is impossible."""
        self._program, self._timeout = command[0], timeout_seconds
        self._deadline = time.monotonic() + timeout_seconds
        self._output, self._errors = (tempfile.TemporaryFile() for _ in range(2))  # noqa: SIM115 (see `_close`)
        with tempfile.TemporaryFile() as given:
            given.write(json.dumps(request).encode() + b"\n")
            given.seek(0)
            try:
                self._process = subprocess.Popen(
                    list(command), stdin=given, stdout=self._output, stderr=self._errors, start_new_session=True
                )
            except OSError as error:
                self._close()
                raise HookFailed(f"{self._program} cannot be run ({error.strerror}).") from None

    def result(self) -> Answer | None:
        """Return the command's answer; None while it runs. Raises HookFailed."""
        code = self._process.poll()
        if code is None:
            if max(os.fstat(file.fileno()).st_size for file in (self._output, self._errors)) > _MOST_BYTES:
                self.end()
                raise HookFailed(f"{self._program} printed more than a megabyte, and was ended.")
            if time.monotonic() < self._deadline:
                return None
            self.end()
            raise HookFailed(f"{self._program} took longer than {self._timeout:g} s, and was ended.")
        output, errors = _text(self._output), _text(self._errors)
        self.end()
        if code:
            how = f"ended by signal {-code}" if code < 0 else f"ended with code {code}"
            last = (errors.strip() or output.strip()).splitlines()[-1:]
            raise HookFailed(f"{self._program} {how}{f': {last[0][:_MOST_WORDS]}' if last else ''}.")
        return answer_of(self._program, output)

    def end(self) -> None:
        """End the command with all that is left of its session."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._close()

    def _close(self) -> None:
        self._output.close()
        self._errors.close()


def answer_of(program: str, output: str) -> Answer:
    """Return the answer in the output of a command. Raises HookFailed."""
    try:
        answer = msgspec.json.decode(output, type=Answer)
    except msgspec.MsgspecError as error:
        shown = output.strip()[:60]
        raise HookFailed(
            f"{program} answered {shown!r} instead of a JSON object with count and message ({error})."
        ) from None
    if answer.count is not None and answer.count < 0:
        raise HookFailed(f"{program} answered with a count of {answer.count}.")
    return msgspec.structs.replace(answer, message=answer.message[:_MOST_WORDS])


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(_MOST_BYTES).decode(errors="replace")
