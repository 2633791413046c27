"""The executor: a Celery worker that receives desired states, and a supervisor that carries them out.

`celery -A workers.executor.app worker -P threads -c 2 -Q host.<name> -n <name>@tidepool`
"""

import logging
import signal
import sys
from typing import Any

from celery import Celery, Task, bootsteps
from kombu.entity import Exchange, Queue
from kombu.exceptions import ChannelError, OperationalError
from tidepool.procfs import set_title
from tidepool.protocol import ProtocolError, Report

from workers.executor.config import ConfigError, executor_config
from workers.executor.curves.observer import CurveObserver
from workers.executor.journals import Journals
from workers.executor.log_rotation import LogRotation
from workers.executor.machine import placed
from workers.executor.monotonic_clock import steady_clock
from workers.executor.notice import NoticeWatch
from workers.executor.probe import make_probe
from workers.executor.reporting import Delivery, Reporter
from workers.executor.signing import Signer, next_start
from workers.executor.supervisor import Supervisor

__all__ = ["REPORT_QUEUE", "REPORT_TASK", "app"]

logger = logging.getLogger(__name__)

REPORT_TASK = "jobs.tasks.ingest_report"
REPORT_QUEUE = "control"
#: The same queue for sending: without an exchange, whose bindings a host's user may not write.
_REPORTS: Any = Queue(REPORT_QUEUE, Exchange(""), routing_key=REPORT_QUEUE, no_declare=True)  # type: ignore[no-untyped-call]
#: Signal that says that the machine will be gone soon.
NOTICE_SIGNAL = signal.SIGUSR2
#: Timeout of connections to the broker.
_SOCKET_SECONDS = 2.0


def _settings() -> dict[str, Any]:
    try:
        config = placed(executor_config())
    except ConfigError as error:
        sys.exit(f"executor: {error}.")
    return {
        "broker_url": config.broker_url,
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "broker_transport_options": {
            "socket_timeout": _SOCKET_SECONDS,
            "socket_connect_timeout": _SOCKET_SECONDS,
            **_own_keys(config.host),
        },
        "accept_content": ["json"],
        "task_serializer": "json",
        "task_ignore_result": True,
        "worker_enable_remote_control": False,
        "worker_send_task_events": False,
        "worker_prefetch_multiplier": 1,
        "worker_hijack_root_logger": True,
        "enable_utc": True,
    }


def _own_keys(host: str) -> dict[str, str]:
    """Return the names of the keys for unacknowledged messages: kombu's own would be shared by all hosts."""
    return {f"{kind}_key": f"{kind}.{host}" for kind in ("unacked", "unacked_index", "unacked_mutex")}


class SupervisorStep(bootsteps.StartStopStep):  # type: ignore[misc]  # Celery has no types
    """Start supervisor and reporter with the worker; leave the ranks running when the worker stops."""

    requires = {"celery.worker.components:Pool"}

    def __init__(self, parent: Any, **options: Any) -> None:
        super().__init__(parent, **options)
        config = placed(executor_config())
        self._title = f"tidepool executor {config.host}"
        self._curves = CurveObserver(config.run_folder / "curves")
        journals = Journals(config.host, config.run_folder / "journals.json", curves=self._curves)
        signer = Signer(config.host, config.key, next_start(config.run_folder / "starts") if config.key else 0)
        sender = _ReportSender(parent.app, signer)
        self._journals = journals
        clock = steady_clock()
        self._supervisor = Supervisor(config, journals, lambda: self._reporter.changed(), clock)
        self._notice = NoticeWatch(config.notice, lambda: self._reporter.changed())
        self._reporter = Reporter(
            config,
            make_probe(config),
            journals,
            observe=self._supervisor.observation,
            send=sender.send,
            clock=clock,
            on_sent=self._supervisor.note_heard,
            notice=self._notice.current,
        )
        self._log_rotation = LogRotation(config.host, self._supervisor.folders)
        parent.app.supervisor, parent.app.signer = self._supervisor, signer

    def start(self, parent: Any) -> None:
        set_title(self._title)  # Celery has set its own by now
        self._journals.recall()
        self._supervisor.start()
        signal.signal(NOTICE_SIGNAL, lambda *_: self._notice.signal())
        self._notice.start()
        self._reporter.start()
        self._log_rotation.start()
        self._curves.start()

    def stop(self, parent: Any) -> None:
        self._notice.leave()
        self._supervisor.detach()
        self._log_rotation.leave()
        self._curves.leave()
        self._reporter.leave()

    terminate = stop


class _ReportSender:
    """Sender of reports by task name, on a connection of its own without retries."""

    def __init__(self, celery: Celery, signer: Signer) -> None:
        self._celery, self._signer = celery, signer
        self._connection: Any = None  # kombu has no types

    def send(self, report: Report, most_waiting: int) -> Delivery:
        """Send a report unless `most_waiting` wait in the queue. Raises OSError if the broker cannot be reached."""
        try:
            return self._send(report, most_waiting)
        except (OperationalError, OSError) as error:
            self._close()
            raise ConnectionError(str(error)) from error

    def _send(self, report: Report, most_waiting: int) -> Delivery:
        if self._connection is None:
            self._connection = self._celery.connection_for_write()
            self._connection.ensure_connection(max_retries=1, interval_start=0, timeout=_SOCKET_SECONDS)
        waiting = self._waiting(self._connection)
        if waiting >= most_waiting:
            return Delivery(sent=False, waiting=waiting)
        self._celery.send_task(
            REPORT_TASK,
            args=[self._signer.sealed(report)],
            queue=_REPORTS,
            ignore_result=True,
            retry=False,
            connection=self._connection,
        )
        return Delivery(sent=True, waiting=waiting)

    def _waiting(self, connection: Any) -> int:
        try:
            return int(connection.default_channel.queue_declare(REPORT_QUEUE, passive=True).message_count)
        except ChannelError:  # no such queue yet
            return 0

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _sync(task: Task, values: dict[str, Any]) -> None:
    """Pass a desired state (a `Sync` as plain JSON, or an `Envelope` of one) to the supervisor."""
    signer: Signer = task.app.signer
    try:
        sync = signer.opened(values)
    except ProtocolError as error:
        logger.warning("a desired state was refused: %s (%s so far)", error, signer.refused)
        return
    task.app.supervisor.submit(sync)


# Disable Celery's Django fixup: it would load all of Django if the environment names settings.
app = Celery("executor", fixups=[])
app.add_defaults(_settings)
app.steps["worker"].add(SupervisorStep)
app.task(_sync, name="executor.sync", bind=True, ignore_result=True)
