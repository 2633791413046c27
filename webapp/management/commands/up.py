"""`manage.py up`: everything that Tidepool needs, on this machine, in the foreground."""

import threading
import time
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from webapp.embedded.certificate import CertificateFiles
from webapp.embedded.ports import WMLA_PORTS, check_address, parse_listeners, site_url
from webapp.embedded.preparation import PREPARED, become_stack, prepare, take_signals
from webapp.embedded.process_specs import StackOptions
from webapp.embedded.stack import Stack, StopAsked
from webapp.initial_data import ADMIN

_CHECKOUT = Path(__file__).resolve().parents[3]


class Command(BaseCommand):
    help = "Start broker, site, scheduler and virtual GPU hosts on this machine; Ctrl-C stops them all."
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--address", default="127.0.0.1", help="IP address to serve (default: this machine only)")
        parser.add_argument("--port", type=_between(1, 65535), default=8000)
        parser.add_argument(
            "--wmla-ports",
            nargs="?",
            type=parse_listeners,
            const=parse_listeners(WMLA_PORTS),
            default=(),
            metavar="PORTS",
            help=f"answer on the ports of WMLA, too, or on these; without a value: {WMLA_PORTS}",
        )
        parser.add_argument("--hosts", type=_between(1, 16), default=2, help="virtual GPU hosts (default 2)")
        parser.add_argument(
            "--slots-per-host", type=_between(1, 16), default=4, help="virtual GPUs of each (default 4)"
        )
        parser.add_argument("--broker", choices=["auto", "system", "wheel"], default="auto")
        parser.add_argument(
            "--demo", action="store_true", help="also play the tutorial, and leave a history for What if"
        )
        parser.add_argument(
            "--no-examples", action="store_true", help="leave a new home without dataset, model and groups for GPUs"
        )

        # `up` passes this to itself once it has prepared everything: the monotonic time at which it began.
        parser.add_argument(PREPARED, type=float, help=SUPPRESS)

    def handle(self, *args: Any, **options: Any) -> None:
        if options["demo"] and options["no_examples"]:
            raise CommandError("--demo plays with the examples: leave out --no-examples.")
        if options["port"] in {listener.port for listener in options["wmla_ports"]}:
            raise CommandError(f"--wmla-ports names {options['port']}, which is already --port: name other ports.")
        chosen = StackOptions(**{name: options[name] for name in StackOptions.__dataclass_fields__})
        if options["prepared"] is not None:
            self._run(chosen, begun=options["prepared"])
            return
        begun = time.monotonic()
        check_address(chosen.address, settings.ALLOWED_HOSTS)
        stop_asked = threading.Event()
        take_signals(stop_asked.set)
        self._say(f"Tidepool starts in {settings.TIDEPOOL_HOME}")
        prepare(chosen, self._say)
        if not stop_asked.is_set():
            become_stack(site_url(chosen.address, chosen.port), begun)
        self._say("Stopping before everything had started.")

    def _run(self, chosen: StackOptions, begun: float) -> None:
        stack = Stack(chosen, _CHECKOUT, self._say)
        take_signals(stack.ask_to_stop)
        try:
            stack.start()
            self._say_ready(stack, time.monotonic() - begun)
            if chosen.demo:
                stack.play_tutorial()
            stack.run_until_asked_to_stop()
        except StopAsked:
            self._say("Stopping before everything had started.")
        finally:
            stack.stop()
        self._say("Tidepool has stopped.")

    def _say_ready(self, stack: Stack, seconds: float) -> None:
        file = settings.TIDEPOOL_HOME / "admin-password"
        password = f"first password in {file}" if file.exists() else "with its password"
        if stack.password_is_new:
            password = f"password {file.read_text().strip()}"
        self._say(f"Tidepool is ready at {stack.url}")
        self._say_wmla_ports(stack)
        self._say(f"  Log in as {ADMIN}, {password}. It took {seconds:.1f} s.")
        self._say("  Ctrl-C stops everything; running trainings continue at the next start.")

    def _say_wmla_ports(self, stack: Stack) -> None:
        if stack.wmla_urls:
            self._say(f"  Also at {', '.join(stack.wmla_urls)}")
        if any(url.startswith("https:") for url in stack.wmla_urls):
            file = CertificateFiles(settings.TIDEPOOL_HOME).public
            self._say(f"  Clients can trust the certificate in {file}")

    def _say(self, sentence: str) -> None:
        try:
            self.stdout.write(sentence)
            self.stdout.flush()
        except OSError:
            # The terminal was closed; the children must be stopped nevertheless.
            return


def _between(least: int, most: int) -> Any:
    def parse(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}")
        return int(text)

    return parse
