"""First half of `up`: prepares the home, the database, the static files and the broker's address.

Afterwards `up` becomes a new program, so that its settings, which its parts share, know all of these, and so that the
memory which migrations take is free again.
"""

import os
import secrets
import signal
import sys
import time
from collections.abc import Callable
from typing import NoReturn

from django.conf import settings
from django.core.management import call_command

from webapp.embedded import broker, home, ports
from webapp.embedded.forked import STOP_SIGNALS
from webapp.embedded.process_specs import StackOptions, stack_environment
from webapp.environment import write_private

__all__ = ["PREPARED", "become_stack", "prepare", "report", "take_signals"]

#: Option of the second half's command line.
PREPARED = "--prepared"


def prepare(options: StackOptions, say: Callable[[str], None]) -> None:
    """Prepare all that needs no other process."""
    pool, site = settings.TIDEPOOL_HOME, ports.site_url(options.address, options.port)
    home.prepare_home(pool)
    home.close_database(settings.DATABASES["default"])
    with home.lock_home(pool, f"process {os.getpid()} at {site}"):
        ports.check_port(options.address, options.port)
        ports.check_ports(options.address, options.wmla_ports)
        begun = time.monotonic()
        call_command("migrate", verbosity=0, interactive=False)
        report(say, "database", "migrated", begun)
        begun = time.monotonic()
        call_command("collectstatic", verbosity=0, interactive=False, clear=True)
        report(say, "static files", "hashed and compressed", begun)
        if settings.BROKER_IS_EMBEDDED:
            socket = broker.socket_path(pool / "run")
            write_private(settings.EMBEDDED_BROKER_FILE, broker.socket_url(socket, secrets.token_urlsafe(32)))


def become_stack(site: str, begun: float) -> NoReturn:
    """Go on as the second half, in the same process. A signal waits until that one has its handlers.

    begun: monotonic time at which the first half began.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    sys.stdout.flush()
    command = [sys.executable, *sys.orig_argv[1:], "--skip-checks", PREPARED, str(begun)]
    os.execve(sys.executable, command, stack_environment(settings.TIDEPOOL_HOME, site))  # noqa: S606 (no shell is meant)


def take_signals(stop: Callable[[], None]) -> None:
    """Call `stop` at each signal to stop."""
    # A shell that starts a process in the background makes it ignore SIGINT: install the handler explicitly.
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: stop())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def report(say: Callable[[str], None], part: str, how: str, begun: float) -> None:
    """Say that a part is ready, and how long it took."""
    say(f"  {part:<12} {how:<48} {time.monotonic() - begun:5.1f} s")
