"""Reports of this host to the control plane: at once after a change, and every second, or two where it has no ranks.

A report that cannot be sent is dropped, since the next one contains all facts again.
"""

import logging
import threading
import time
import uuid
from collections.abc import Callable
from typing import NamedTuple

import msgspec
from tidepool.backoff import Interval
from tidepool.protocol import DeviceReading, EnvironmentState, HostFacts, Report

from workers.executor.config import ExecutorConfig
from workers.executor.journals import Journals
from workers.executor.notice import Notice
from workers.executor.probe import GpuProbe, VirtualProbe
from workers.executor.slot_shares import slot_limits
from workers.executor.supervisor import Observation

__all__ = ["Delivery", "Reporter"]

logger = logging.getLogger(__name__)

ENTRIES_PER_REPORT = 500
_TICK_SECONDS = 0.1
#: Seconds between two reports that tell steps, and how many of these all hosts together send a second: with more hosts,
#: each sends them less often, and with every heartbeat at least.
_STEPS_INTERVAL_SECONDS = 0.4
_STEPS_REPORTS_PER_SECOND = 60
_HEARTBEAT_SECONDS = 1.0
#: The same while there are no ranks, whose GPUs a page could show at work.
_IDLE_HEARTBEAT_SECONDS = 2.0
#: Seconds after which unchanged states of environments are told again.
_ENVIRONMENTS_SECONDS = 20.0
#: Seconds between two looks at the host's hardware: a driver may come late, or go.
_FACTS_SECONDS = 10.0
_OUTAGE_BACKOFF_SECONDS = 1.0
#: Number of waiting reports that is usual and causes no pause: this one, or one report of so many hosts each.
_USUALLY_WAITING = 2
_HOSTS_PER_REPORT_WAITING = 8
#: Longest pause: while the control plane is behind, more reports would only queue up.
_LONGEST_PAUSE_SECONDS = 3.0
#: Number of waiting reports at which none is sent: they would only come later. It grows with each second since the last
#: report of this host, so that all hosts have their turn where many find the queue full.
_MOST_WAITING = 200
_MORE_EACH_SECOND = 40
_MOST_WAITING_EVER = 1000


class Delivery(NamedTuple):
    sent: bool
    #: Number of reports of all hosts that the control plane has not consumed yet.
    waiting: int


class Reporter:
    """Thread that sends reports; `observe` and `clock` are the supervisor's.

    `send` delivers a report unless so many wait, or raises OSError.
    """

    def __init__(
        self,
        config: ExecutorConfig,
        probe: VirtualProbe | GpuProbe,
        journals: Journals,
        *,
        observe: Callable[[], Observation | None],
        send: Callable[[Report, int], Delivery],
        clock: Callable[[], float],
        on_sent: Callable[[], None] = lambda: None,
        notice: Callable[[], Notice | None] = lambda: None,
    ) -> None:
        """on_sent: called whenever the broker has taken a report. notice: returns the notice that counts."""
        self._notice = notice
        self._on_sent = on_sent
        self._config = config
        self._probe = probe
        self._journals = journals
        self._observe = observe
        self._send = send
        self._clock = clock
        self._boot = uuid.uuid4().hex
        self._facts = self._read_facts()
        self._looking = Interval(_FACTS_SECONDS)
        self._devices: list[DeviceReading] = []
        self._reading = Interval(_HEARTBEAT_SECONDS * 0.9)
        #: States of environments as told last; None: not told.
        self._environments: tuple[EnvironmentState, ...] | None = None
        self._retelling = Interval(_ENVIRONMENTS_SECONDS)
        self._sent_at = 0.0
        #: Monotonic time at which the broker took a report last.
        self._taken_at = time.monotonic()
        self._failing = False
        self._pause_seconds = 0.0
        self._changed = threading.Event()
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reporter", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def changed(self) -> None:
        """Request a report soon; thread-safe. Changes within a tick share a report."""
        self._changed.set()

    def leave(self) -> None:
        """Stop reporting. If no rank is left, a last report announces that this host leaves."""
        self._leaving.set()
        if self._thread.ident is not None:
            self._thread.join(30.0)
        observation = self._observe()
        if observation is not None and not observation.ranks:
            self._deliver(msgspec.structs.replace(self._report(observation), leaving=True), observation.hosts)

    def _run(self) -> None:
        while not self._leaving.wait(_OUTAGE_BACKOFF_SECONDS if self._failing else _TICK_SECONDS):
            try:
                self.turn()
            except Exception:
                logger.exception("host=%s: a report failed, retrying", self._config.host)

    def turn(self) -> None:
        """Send a report if one is due."""
        observation = self._observe()
        if observation is None or not self._due(observation):
            return
        self._changed.clear()
        self._sent_at = time.monotonic()
        self._deliver(self._report(self._observe() or observation), observation.hosts)

    def _deliver(self, report: Report, hosts: int) -> None:
        """Send a report, and pause if more wait than usual. hosts: number of hosts that report."""
        try:
            sent, waiting = self._send(report, _most_waiting(time.monotonic() - self._taken_at))
            usual = max(_USUALLY_WAITING, hosts // _HOSTS_PER_REPORT_WAITING)
            self._pause_seconds = min(_LONGEST_PAUSE_SECONDS, max(0, waiting - usual) / usual)
            if sent:
                self._taken_at = time.monotonic()
                self._on_sent()
            else:
                self._take_back(report)
        except OSError as error:
            self._take_back(report)
            if not self._failing:
                logger.warning("host=%s: the broker cannot be reached: %s", self._config.host, error)
            self._failing = True
            return
        if self._config.alive_file is not None:
            self._config.alive_file.touch()
        if self._failing:
            logger.info("host=%s: the broker can be reached again", self._config.host)
        self._failing = False

    def _take_back(self, report: Report) -> None:
        self._journals.put_back(report.entries)
        self._environments = None

    def _due(self, observation: Observation) -> bool:
        heartbeat_seconds = _HEARTBEAT_SECONDS if observation.ranks else _IDLE_HEARTBEAT_SECONDS
        age = time.monotonic() - self._sent_at
        if age < self._pause_seconds:
            return False
        if age >= heartbeat_seconds or self._changed.is_set() or self._journals.has_urgent():
            return True
        return age >= _steps_interval(observation.hosts) and self._journals.has_unsent()

    def _report(self, observation: Observation) -> Report:
        at, notice = self._clock(), self._notice()
        leaving_at = None if notice is None else max(0.0, at + notice.leaving_at - time.time())
        return Report(
            host=self._config.host,
            boot=self._boot,
            at=at,
            leaving_at=leaving_at,
            leaving_why="" if notice is None else notice.why[:200],
            clock=time.time(),
            least_behind=observation.least_behind,
            applied_revision=observation.applied_revision,
            devices=self._read_devices(observation),
            facts=msgspec.structs.replace(self._facts, **observation.isolation),
            ranks=observation.ranks,
            entries=self._journals.take(ENTRIES_PER_REPORT),
            environments=self._environments_to_tell(observation),
        )

    def _environments_to_tell(self, observation: Observation) -> list[EnvironmentState] | None:
        """Return the states of environments if they have changed, or were told long ago."""
        if observation.environments == self._environments and not self._retelling.is_due(time.monotonic()):
            return None
        self._environments = observation.environments
        return [*observation.environments]

    def _read_facts(self) -> HostFacts:
        limits = slot_limits(self._config)
        return msgspec.structs.replace(
            self._probe.facts(),
            slot_memory_bytes=limits.memory_bytes,
            slot_cores=limits.cores,
            slot_processes=limits.processes,
            fleet=self._config.fleet,
            reserved_cores=self._config.reserved_cores,
            reserved_memory_bytes=self._config.reserved_memory_bytes,
        )

    def _read_devices(self, observation: Observation) -> list[DeviceReading]:
        """Read devices at most once per heartbeat: utilization over shorter spans is meaningless."""
        if self._looking.is_due(time.monotonic()):
            self._facts = self._read_facts()
        if self._reading.is_due(time.monotonic()):
            self._devices = self._probe.devices(observation.ranks)
        return self._devices


def _steps_interval(hosts: int) -> float:
    return min(_HEARTBEAT_SECONDS, max(_STEPS_INTERVAL_SECONDS, hosts / _STEPS_REPORTS_PER_SECOND))


def _most_waiting(age: float) -> int:
    """Return how many reports may wait where this host sends one, so many seconds after its last one."""
    return min(_MOST_WAITING_EVER, _MOST_WAITING + int(_MORE_EACH_SECOND * age))
