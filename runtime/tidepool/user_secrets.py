"""Secrets of users in a training's processes: variables, files in memory, and logs without the values.

The values reach a shim in memory alone. Ranks get them as variables, or as the path of a file that exists in the
shim's memory only. What such a rank writes to stdout and stderr passes the shim, which masks the values before they
reach the log: no reader of a log has to know them, not even after they were replaced.
"""

import fcntl
import os
import selectors
import termios
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from tidepool.protocol import GivenSecret
from tidepool.secret_masks import Mask

__all__ = ["MaskedLog", "RankLogs", "ShimSecrets"]

#: Bytes that are read from a rank at once.
_CHUNK_BYTES = 65536


class MaskedLog:
    """A log of a rank that is written through a pipe, by the rank's shim."""

    def __init__(self, file: Path, values: Sequence[str]) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._mask = Mask(values)
        self.reader, self.writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.reader, False)
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def close_writer(self) -> None:
        """Leave the writing end to the rank: the end of the rank and all that it started ends the log."""
        os.close(self.writer)

    def turn(self) -> bool:
        """Write what has arrived; return False once nothing can follow."""
        while True:
            try:
                data = os.read(self.reader, _CHUNK_BYTES)
            except BlockingIOError:
                return True
            if not data:
                self._write(self._mask.rest())
                return False
            self._write(self._mask.feed(data))
            if len(data) < _CHUNK_BYTES:
                return True

    def close(self) -> None:
        """Write what is left, and close the log."""
        while self.turn():
            if not self._has_more():
                self._write(self._mask.rest())
                break
        os.close(self.reader)
        os.close(self._file)

    def _has_more(self) -> bool:
        return any(fcntl.ioctl(self.reader, termios.FIONREAD, b"\0\0\0\0"))

    def _write(self, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError:
            # The disk is full: the rank goes on, as it would with a log of its own that it cannot flush.
            return


class ShimSecrets:
    """The secrets that a shim gives to its ranks."""

    def __init__(self, secrets: Sequence[GivenSecret]) -> None:
        self._descriptors = {secret.name: _sealed_file(secret) for secret in secrets if secret.is_file}
        paths = {name: f"/proc/{os.getpid()}/fd/{number}" for name, number in self._descriptors.items()}
        #: Variable -> value, or the path of a file, which lasts as long as this process.
        self.variables = {secret.name: paths.get(secret.name, secret.value) for secret in secrets}
        self.values = tuple(secret.value for secret in secrets)

    def logs(self, log_dir: Path, selector: selectors.BaseSelector) -> "RankLogs":
        """Return the logs for stdout and stderr of a rank, without any if there is nothing to mask."""
        names = ("stdout", "stderr") if self.values else ()
        return RankLogs([MaskedLog(log_dir / name, self.values) for name in names], selector)


class RankLogs:
    """The logs of a rank that its shim writes. The selector's data are functions to call, as in the shim."""

    def __init__(self, logs: Sequence[MaskedLog] = (), selector: selectors.BaseSelector | None = None) -> None:
        self._logs, self._selector = logs, selector
        #: Descriptors for the rank's stdout and stderr; None: the rank writes its logs itself.
        self.writers = (logs[0].writer, logs[1].writer) if logs else None
        for log in logs:
            assert selector is not None
            selector.register(log.reader, selectors.EVENT_READ, partial(self._write, log))

    def close_writers(self) -> None:
        for log in self._logs:
            log.close_writer()

    def close(self) -> None:
        """Write what is left, and close the logs."""
        for log in self._logs:
            self._leave(log)
            log.close()

    def _write(self, log: MaskedLog) -> None:
        if not log.turn():
            self._leave(log)

    def _leave(self, log: MaskedLog) -> None:
        assert self._selector is not None
        with suppress(KeyError):  # the log has ended before the rank
            self._selector.unregister(log.reader)


def _sealed_file(secret: GivenSecret) -> int:
    """Return a descriptor of a file in memory that nobody can change any more."""
    number = os.memfd_create(f"tidepool-{secret.name}"[:200], os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    data = secret.value.encode()
    while data:
        data = data[os.write(number, data) :]
    os.fchmod(number, 0o400)
    fcntl.fcntl(
        number, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    )
    return number
