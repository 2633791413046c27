"""`manage.py doctor`: says what this machine has for trainings, what is missing, and what to do."""

import json
import subprocess
import sys
from argparse import ArgumentParser
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from workers.executor.config import ConfigError, self_test_environment, virtual_slots_of
from workers.executor.devices.findings import Finding, findings
from workers.executor.devices.host_state import read_host_state

_WORDS = {"ok": "ok", "warning": "warning", "missing": "MISSING"}


class Command(BaseCommand):
    help = (
        "Say what this machine has for trainings: driver, GPUs, torch, shared memory, InfiniBand, disk. Run it on each "
        "host, in the environment of its executor. Exit code 1: something is missing, and the last column says what to "
        "do. No training is disturbed."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print the findings as JSON")
        parser.add_argument(
            "--gpu", action="store_true", help="then run trainings on the GPUs for ten minutes, as `make test-gpu` does"
        )
        parser.add_argument("--minutes", type=float, default=10.0, help="with --gpu: shorter runs have fewer deaths")
        parser.add_argument("--folder", type=Path, default=Path("test-results/gpu"), help="with --gpu: for its results")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            virtual_slots = virtual_slots_of()
        except ConfigError as error:
            raise CommandError(f"{error}.") from None
        found = findings(read_host_state(self_test_environment(), settings.TIDEPOOL_HOME, virtual_slots))
        if options["json"]:
            self.stdout.write(json.dumps([asdict(finding) for finding in found], indent=1))
        else:
            for finding in found:
                self.stdout.write(_line(finding))
        missing = sum(finding.level == "missing" for finding in found)
        if not options["json"]:
            self.stdout.write(f"{missing} missing." if missing else "Nothing is missing.")
        if missing:
            sys.exit(1)
        if options["gpu"]:
            stands_in = ["--cpu"] if virtual_slots else []
            sys.exit(_accept(f"--minutes={options['minutes']:g}", f"--folder={options['folder']}", *stands_in))


def _accept(*words: str) -> int:
    """Run the acceptance of this machine's GPUs; return its exit code."""
    if not (settings.BASE_DIR / "benchmarks" / "gpu_acceptance.py").exists():
        raise CommandError("--gpu needs a checkout with benchmarks and tests: run `make test-gpu` in one.")
    return subprocess.call([sys.executable, "-u", "-m", "benchmarks.gpu_acceptance", *words], cwd=settings.BASE_DIR)


def _line(finding: Finding) -> str:
    return f"{_WORDS[finding.level]:8} {finding.about:14} {finding.sentence} {finding.remedy}".rstrip()
