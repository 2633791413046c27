"""A command in a rank's place, where a model is no Python script: `--user-cmd` of WMLA's clients.

Such a model has COMMAND_FILE as its entry point, and the command's words are its arguments. Each rank runs the command
once, as a node of one device. `torchrun`, which is such a command, then starts one worker on each of them.
"""

import signal
import subprocess
import sys
from typing import NoReturn

from tidepool.env import command_environment, lend_secret

__all__ = ["COMMAND_FILE", "COMMAND_SOURCE", "run"]

#: Name and content of the entry point.
COMMAND_FILE = "user_command.py"
COMMAND_SOURCE = '''\
"""Runs the words behind it as a command, on each GPU once."""

from tidepool.command_runner import run

run()
'''


def run() -> NoReturn:
    """Run the words behind the script's name, hand SIGTERM on, and end as the command ends.

    Only the command's own process gets the signal, as a script would: a shell script begins its last line with `exec`.
    """
    words = sys.argv[1:]
    try:
        with lend_secret() as (variable, descriptors):
            process = subprocess.Popen(words, env=command_environment() | variable, pass_fds=descriptors)
    except OSError as error:
        sys.exit(f"the command {words[0]!r} cannot be run: {error.strerror}")
    signal.signal(signal.SIGTERM, lambda number, frame: process.terminate())
    code = process.wait()
    sys.exit(code if code >= 0 else 128 - code)  # the code that a shell reports for a signal
