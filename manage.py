#!/usr/bin/env python
"""Django's command line for Tidepool."""

import os
import sys


def main() -> None:
    if sys.version_info < (3, 11):  # noqa: UP036 (an older one reads this line too)
        sys.exit(f"Tidepool needs Python 3.11 or newer, and this is {sys.version.split()[0]}: run `make setup`.")
    try:
        from django import get_version
        from django.core.exceptions import ImproperlyConfigured
        from django.core.management import execute_from_command_line
        from tidepool.version import VERSION
    except ImportError:
        sys.exit("Django is not installed here: run `make setup`, then .venv/bin/python manage.py.")
    if sys.argv[1:] in (["version"], ["--version"]):
        sys.stdout.write(f"tidepool {VERSION} (Django {get_version()})\n")
        return
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        # A setting that does not fit; the sentence says what to change.
        sys.exit(str(error))


if __name__ == "__main__":
    main()
