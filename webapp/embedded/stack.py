"""The embedded stack as a whole: starts its parts in order, waits for each, keeps them running, stops them in order."""

import http.client
import os
import subprocess
import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import IO, cast
from urllib.parse import urlsplit

from django.conf import settings
from django.core.management import CommandError
from django.utils import timezone
from tidepool import procfs

from core.text import plural
from jobs.control.checkpoints import catch_up_with_folders
from jobs.control.job_end import requeue_interrupted, stop_trainings
from jobs.models import SchedulerLease, SlotClaim
from webapp.embedded import broker, home, ports
from webapp.embedded.certificate import certificate_names, ensure_certificate
from webapp.embedded.forked import load_parts
from webapp.embedded.preparation import report
from webapp.embedded.process_specs import StackOptions, StackSpecs, mlflow_variables
from webapp.embedded.processes import Children, end_descendants
from webapp.environment import write_private
from webapp.initial_data import fill_home, has_admin
from workers import actions
from workers.executor.join import KEY_FILE
from workers.host_keys import present_key
from workers.models import Host

__all__ = ["Stack", "StopAsked"]

_BROKER_SECONDS = 20.0
_READY_SECONDS = 120.0
_ANSWER_SECONDS = 5.0
_POLL_SECONDS = 0.05
#: Seconds for trainings to stop with the stack; longer than the default grace of instance groups.
_STANDSTILL_SECONDS = 12.0


class StopAsked(Exception):
    """The stack was asked to stop while it is still starting."""


class Stack:
    """Call `start` once, `watch` a few times per second, and `stop` in any case."""

    def __init__(self, options: StackOptions, checkout: Path, say: Callable[[str], None]) -> None:
        self.url = ports.site_url(options.address, options.port)
        self.wmla_urls = [listener.url(options.address) for listener in options.wmla_ports]
        self._options = options
        self._home = settings.TIDEPOOL_HOME
        self._say = say
        self._stop_asked = threading.Event()
        #: Whether it was asked again, so that it stops without waiting.
        self._hurry_asked = threading.Event()
        self._lock: IO[str] | None = None
        #: Pipe end inherited by all descendants down to the shims, which end at once when it reads EOF. The other end
        #: stays in this process, so the kernel closes it even if this process is killed.
        self._lifeline, self._lifeline_end = os.pipe()
        self._children = Children(logs=self._home / "logs", say=say)
        self._hosts = [f"gpu-host-{number}" for number in range(1, options.hosts + 1)]
        self._ready = False
        #: Whether this start generated the admin's password, which is still to be shown.
        self.password_is_new = False
        self._tutorial: subprocess.Popen[bytes] | None = None
        self._specs = StackSpecs(checkout, self._home)

    def ask_to_stop(self) -> None:
        """Request the stop; a second call makes it immediate. Safe in a signal handler."""
        if self._stop_asked.is_set():
            self._hurry_asked.set()
        self._stop_asked.set()

    def start(self) -> None:
        self._lock = home.lock_home(self._home, f"process {os.getpid()} at {self.url}")
        home.remove_sockets(self._home)
        procfs.become_subreaper()
        self._start_broker()
        # Filling the home publishes events over the broker.
        self._fill_home()
        broker.purge(["control", *(f"host.{name}" for name in self._hosts)])
        started = timezone.now()
        epoch = _lease_epoch()
        self._enroll_hosts()
        self._retire_absent_hosts()
        self._requeue()
        # The database may have been restored from a backup.
        catch_up_with_folders()
        self._start_parts()
        self._wait_for_site()
        self._start_hosts()  # not earlier: loading torch would delay all other parts
        self._wait_for_parts(started, epoch)
        self._ready = True
        # Last, because nothing waits for them, and the content of a new home is already checked.
        if mlflow_variables(self._home):
            self._children.start(self._specs.command("mlflow", "serve_mlflow"))
        self._children.start(self._specs.part("background", "run_background"))
        if settings.TIDEPOOL_FLEETS_FILE is not None:
            self._children.start(self._specs.command("autoscale", "autoscale"))

    def run_until_asked_to_stop(self) -> None:
        while not self._stop_asked.wait(0.2):
            self._children.watch()
            self._watch_tutorial()

    def play_tutorial(self) -> None:
        """Start the tutorial; its table goes to the terminal, among what this process says."""
        spec = self._specs.command("tutorial", "tutorial", "--history", "--url", self.url)
        self._tutorial = subprocess.Popen(
            spec.command, cwd=spec.folder, env=spec.environment, stdin=subprocess.DEVNULL, start_new_session=True
        )

    def stop(self) -> None:
        """Stop all of the stack. Running jobs wait for the next start."""
        if self._tutorial is not None:
            self._tutorial.kill()
        self._children.stop(["autoscale", "background", "scheduler"], grace_seconds=5)
        if self._ready:
            self._stop_trainings()
        self._children.stop(["control"], grace_seconds=5)
        self._requeue()
        os.close(self._lifeline_end)
        self._children.stop(self._hosts, grace_seconds=5)
        self._children.stop(["web", "mlflow"], grace_seconds=4)
        self._children.stop(["broker"], grace_seconds=5)
        killed = end_descendants(grace_seconds=3)
        if killed:
            self._say(f"Killed {len(killed)} processes that did not end by themselves: {killed}.")
        if self._lock is not None:
            home.remove_sockets(self._home)
            self._lock.truncate(0)
            self._lock.close()

    def _stop_trainings(self) -> None:
        """Stop trainings with a checkpoint. Hosts and the control worker still run, but the scheduler does not restart
        them."""
        asked = stop_trainings(within_seconds=_STANDSTILL_SECONDS)
        if not asked:
            return
        trainings = plural(asked, "{count} training", "{count} trainings")
        self._say(
            f"  {trainings} may take {_STANDSTILL_SECONDS:.0f} s to stop. Press Ctrl-C again to end everything at once."
        )
        deadline = time.monotonic() + _STANDSTILL_SECONDS
        while SlotClaim.objects.open().exists() and time.monotonic() < deadline and not self._hurry_asked.wait(0.2):
            self._children.watch()

    # --- parts of the start ---

    def _fill_home(self) -> None:
        """Fill a new home; note the administrator's first password."""
        begun = time.monotonic()
        given = settings.TIDEPOOL_ADMIN_PASSWORD
        password, self.password_is_new = home.admin_password(self._home, given, has_admin=has_admin())
        fill_home(password, examples=not self._options.no_examples)
        self._report("home", str(self._home), begun)

    def _start_broker(self) -> None:
        begun = time.monotonic()
        if not settings.BROKER_IS_EMBEDDED:
            self._report("broker", "yours, as TIDEPOOL_BROKER_URL says", begun)
            return
        program = broker.find_broker(cast(broker.Choice, self._options.broker))
        socket = broker.socket_path(self._home / "run")
        password = urlsplit(settings.TIDEPOOL_BROKER_URL).password or ""
        self._children.start(self._specs.broker(program, socket, password))
        self._wait("broker", "broker", lambda: broker.is_answering(socket, password), _BROKER_SECONDS)
        self._report("broker", str(program), begun)

    def _enroll_hosts(self) -> None:
        known = set(Host.objects.filter(name__in=self._hosts).values_list("name", flat=True))
        for name in self._hosts:
            if name not in known:
                actions.enroll_host(name, "system")
            folder = self._home / "run" / name
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(folder / KEY_FILE, present_key(name))

    def _retire_absent_hosts(self) -> None:
        """Drain and remove the hosts of the last start that this one does not have. Nothing runs on them."""
        note = self._home / "run" / "hosts"
        earlier = note.read_text().split() if note.exists() else []
        absent = [name for name in earlier if name not in self._hosts]
        for host in Host.objects.filter(name__in=absent):
            if host.state == Host.State.ONLINE:
                actions.drain_host(host.name, "system")
            actions.retire_host(host.name)
        for name in absent:
            self._say(f"  {name} is not among the hosts of this start: drained and removed.")
        note.write_text("".join(f"{name}\n" for name in self._hosts))

    def _start_parts(self) -> None:
        load_parts()
        self._children.start(self._specs.web(self._options, self._certificate()))
        self._children.start(self._specs.part("scheduler", "run_scheduler"))
        self._children.start(self._specs.part("control", "take_reports"))

    def _start_hosts(self) -> None:
        for name in self._hosts:
            self._children.start(self._specs.executor(name, self._options.slots_per_host, self._lifeline))

    def _certificate(self) -> Path | None:
        """Return the server's certificate, if a port uses TLS."""
        if not any(listener.is_tls for listener in self._options.wmla_ports):
            return None
        names = certificate_names(self._options.address, settings.ALLOWED_HOSTS)
        return ensure_certificate(self._home, names, timezone.now()).server

    def _wait_for_site(self) -> None:
        begun = time.monotonic()
        self._wait("the site", "web", lambda: self._healthz_status() is not None)
        self._report("site", self.url, begun)

    def _wait_for_parts(self, started: datetime, epoch: int) -> None:
        begun = time.monotonic()
        self._wait("the scheduler", "scheduler", lambda: _lease_epoch() > epoch)
        self._report("scheduler", "leads", begun)
        reporting = Host.objects.filter(last_report_at__gte=started, state=Host.State.ONLINE)
        for name in self._hosts:
            self._wait(name, name, reporting.filter(name=name).exists)
            self._report(name, f"{self._options.slots_per_host} virtual GPUs (CPU)", begun)
        self._wait("the whole stack", "web", lambda: self._healthz_status() == 200)

    def _healthz_status(self) -> int | None:
        """Status of /healthz, which asks database, broker, scheduler and executors; None while there is no answer."""
        connection = http.client.HTTPConnection(self._options.address, self._options.port, timeout=_ANSWER_SECONDS)
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status
        except OSError:
            return None
        finally:
            connection.close()

    def _wait(self, what: str, log_of: str, true: Callable[[], bool], seconds: float = _READY_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not true():
            if time.monotonic() > deadline:
                raise CommandError(f"{what} was not ready within {seconds:g} s: see {self._children.log(log_of)}.")
            self._children.watch()
            if self._stop_asked.wait(_POLL_SECONDS):
                raise StopAsked

    def _requeue(self) -> None:
        count = requeue_interrupted()
        if count:
            jobs = plural(count, "{count} training was", "{count} trainings were")
            self._say(f"  {jobs} interrupted: Tidepool continues from the last checkpoint, or from zero without one.")

    def _watch_tutorial(self) -> None:
        if self._tutorial is None or self._tutorial.poll() is None:
            return
        if self._tutorial.returncode != 0:
            self._say("The tutorial missed some events, listed in its last lines. Everything else continues to run.")
        self._tutorial = None

    def _report(self, part: str, how: str, begun: float) -> None:
        report(self._say, part, how, begun)


def _lease_epoch() -> int:
    """Return the lease's epoch, which each new leading scheduler increments."""
    return SchedulerLease.objects.values_list("epoch", flat=True).first() or 0
