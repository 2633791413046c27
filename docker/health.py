#!/usr/bin/env python3
"""Health checks of the containers. Standard library only, because they run every few seconds.

health.py --url URL                  something answers there. A 503 of /healthz names other parts that are missing.
health.py --socket PATH              something listens on this unix socket
health.py --file FILE --seconds N    the process that touches this file did so within N seconds
"""

import argparse
import socket
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

_ANSWER_SECONDS = 5.0
_PARTS_MISSING = 503


def _problem_of_site(url: str) -> str | None:
    try:
        with urllib.request.urlopen(url, timeout=_ANSWER_SECONDS):  # noqa: S310 (the compose file's own address)
            return None
    except urllib.error.HTTPError as error:
        return None if error.code == _PARTS_MISSING else f"{url} answers {error.code}"
    except OSError as error:
        return f"{url} does not answer: {error}"


def _problem_of_socket(path: Path) -> str | None:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_ANSWER_SECONDS)
        try:
            probe.connect(str(path))
        except OSError as error:
            return f"nothing listens on {path}: {error.strerror or error}"
    return None


def _problem_of_file(file: Path, seconds: float) -> str | None:
    try:
        age = time.time() - file.stat().st_mtime
    except OSError as error:
        return f"{file} is not there yet: {error.strerror}"
    return f"{file} was touched {age:.0f} s ago" if age > seconds else None


def main() -> None:
    parser = argparse.ArgumentParser()
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--url")
    what.add_argument("--socket", type=Path)
    what.add_argument("--file", type=Path)
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    if given.url:
        sys.exit(_problem_of_site(given.url))
    sys.exit(_problem_of_socket(given.socket) if given.socket else _problem_of_file(given.file, given.seconds))


if __name__ == "__main__":
    main()
