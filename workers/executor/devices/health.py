"""Health of this host's GPUs: errors that the driver reports, and when a GPU that had one may be tried again."""

import threading
import time
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from typing import Any

import pynvml
from tidepool.backoff import Interval
from tidepool.device_report import DeviceReport

from workers.executor.devices.inventory import Inventory, or_none

__all__ = ["Health", "is_hardware"]

#: Numbers of Xid errors of the hardware; others, such as 13, 31 and 43, are a script's doing.
_HARDWARE = frozenset({48, 64, 79, 92, 94, 95})
#: Seconds between two self-tests of a GPU that had an error.
_TEST_SECONDS = 60.0
#: Largest number of events that are read at once.
_MOST_EVENTS = 100


def is_hardware(xid: int) -> bool:
    """Return whether an Xid error says that the GPU itself is faulty."""
    return xid in _HARDWARE


class Health:
    """Faults of devices, by UUID. Errors stay until a self-test of the device has passed, with no process on it."""

    def __init__(
        self,
        test: Callable[[str], DeviceReport] | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """test: self-test of the device with a UUID, which takes seconds; None: errors stay."""
        self._test = test
        self._clock = clock
        self._events: Any = None
        #: UUIDs of the boards whose errors the driver tells.
        self._watched: set[str] = set()
        self._errors: dict[str, str] = {}
        self._gone: dict[str, str] = {}
        self._due: dict[str, Interval] = {}
        self._tested: set[str] = set()

    def watch(self) -> None:
        """Have the driver, which has been started, tell errors of the boards that `look` finds."""
        self._events = or_none(pynvml.nvmlEventSetCreate)

    def look(self, inventory: Inventory, uuids: Sequence[str]) -> None:
        """Read the driver's errors, and find devices of slots that are not there any more. uuids: of the slots."""
        present = {device.uuid for device in inventory.devices}
        why = inventory.error or "the driver no longer finds it"
        self._gone = {uuid: why for uuid in uuids if uuid not in present}
        boards = {board.number: board for board in inventory.boards}
        for device in inventory.devices:
            if boards[device.board].remap_failed:
                self._gone[device.uuid] = "broken rows of its memory cannot be replaced"
        self._watch_boards({board.uuid for board in inventory.boards if board.uuid})
        for uuid, xid in self._read_events():
            if is_hardware(xid):
                board = next((board.number for board in inventory.boards if board.uuid == uuid), None)
                for device in inventory.devices:
                    if device.board == board:
                        self._note(device.uuid, f"Xid {xid} at {self._clock():%Y-%m-%d %H:%M:%S} UTC")

    def fault(self, uuid: str) -> str:
        """Return why the device must not be used; "": it may."""
        return self._gone.get(uuid) or self._errors.get(uuid, "")

    def retry(self, held: Collection[str]) -> None:
        """Test devices that had an error, are there and are held by no process; a pass forgets the error."""
        now = time.monotonic()
        for uuid in [*self._errors]:
            is_free = uuid not in held and uuid not in self._gone and uuid not in self._tested
            if self._test is not None and is_free and self._due[uuid].is_due(now):
                self._tested.add(uuid)
                threading.Thread(target=self._run_test, args=(uuid, self._errors[uuid]), daemon=True).start()

    def _note(self, uuid: str, error: str) -> None:
        self._errors[uuid] = error
        self._due.setdefault(uuid, Interval(_TEST_SECONDS))

    def _run_test(self, uuid: str, error: str) -> None:
        assert self._test is not None
        report = self._test(uuid)
        is_clean = not report.error and bool(report.devices) and not any(one.error for one in report.devices)
        if is_clean and self._errors.get(uuid) == error:  # no other error came meanwhile
            del self._errors[uuid]
        self._tested.discard(uuid)

    def _watch_boards(self, present: set[str]) -> None:
        """Ask the driver to tell errors of boards that are new, or were gone and came back."""
        self._watched &= present
        for uuid in present - self._watched if self._events else ():
            if or_none(_register, uuid, self._events):
                self._watched.add(uuid)

    def _read_events(self) -> list[tuple[str, int]]:
        """Return (UUID of the board, number of the Xid) of the events since the last call."""
        found: list[tuple[str, int]] = []
        while self._events is not None and len(found) < _MOST_EVENTS:
            event = or_none(pynvml.nvmlEventSetWait_v2, self._events, 0)
            if event is None:
                break
            uuid = or_none(pynvml.nvmlDeviceGetUUID, event.device)
            found.append((uuid or "", int(event.eventData)))
        return found


def _register(uuid: str, events: Any) -> bool:
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)
    return True
