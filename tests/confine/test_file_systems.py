"""Pools on file systems that cannot show owners as others, as NFS cannot, and pools of a user who is not root."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tidepool.confine.probe import probe

#: Tells, in a mount namespace with a file system of a kind at a folder, whether trainings can be users of their own.
TELLS = """
import ctypes, sys
from tidepool.confine.probe import Apart, probe
libc = ctypes.CDLL(None, use_errno=True)
assert libc.unshare(0x20000) == 0
assert libc.mount(b"none", b"/", b"", 1 << 18 | 1 << 14, None) == 0
kind, place = sys.argv[1:]
assert libc.mount(kind.encode(), place.encode(), kind.encode(), 0, None) == 0
found = probe(Apart(70001, (place,)))
print(found.users, found.why_no_users)
"""


@pytest.mark.parametrize(
    ("kind", "words"),
    [("tmpfs", "True"), ("ramfs", "False its file system does not show owners as others (mount_setattr:")],
)
def test_a_file_system_that_cannot_map_owners_is_named(kind: str, words: str, tmp_path: Path) -> None:
    if os.getuid() != 0 or not probe().mounts:
        pytest.skip("only root can mount")
    command = [sys.executable, "-P", "-c", TELLS, kind, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(words), done.stdout
