#!/usr/bin/env python3
"""Health checks of the containers. Standard library only, because they run every few seconds.

health.py --url URL                  something answers there. A 503 of /healthz names other parts that are missing.
health.py --file FILE --seconds N    the process that touches this file did so within N seconds
"""

import argparse
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
    what.add_argument("--file", type=Path)
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    sys.exit(_problem_of_site(given.url) if given.url else _problem_of_file(given.file, given.seconds))


if __name__ == "__main__":
    main()
