"""Ties a process to the one that started it: `python tether.py PARENT SIGNAL COMMAND...`.

Asks the kernel to send SIGNAL to this process when its parent dies, even by SIGKILL, and becomes COMMAND. Runs as a
file, with the standard library alone, so that it costs a few milliseconds. Elsewhere than on Linux it only execs.
"""

import ctypes
import os
import sys

__all__: list[str] = []

_PR_SET_PDEATHSIG = 1


def main(parent: int, signal_number: int, command: list[str]) -> None:
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0) != 0:
            sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    # The parent may have died before the kernel was asked.
    if os.getppid() != parent:
        sys.exit("The parent process has ended.")
    os.execvp(command[0], command)  # noqa: S606 (no shell is meant)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
