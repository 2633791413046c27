"""dlicmd.py as a process of its own, with a home of its own."""

import base64
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.test_architecture import ROOT
from tests.wmla.recorded import RecordedServer

__all__ = ["PROGRAM", "RUN", "TOKEN", "Command", "token_of"]

PROGRAM = ROOT / "wmla/dlicmd.py"
ENDS = int(time.time()) + 8 * 3600


def token_of(**claims: object) -> str:
    parts = ({"alg": "none"}, claims)
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*encoded, "signature"])


TOKEN = token_of(username="alice", exp=ENDS)
RUN = {"id": "wmla-12", "appId": "wmla-12", "state": "RUNNING", "args": "--exec-start edtPyTorch"}


class Command:
    """The program, with a home of its own."""

    def __init__(self, folder: Path, program: Path = PROGRAM) -> None:
        self.folder = folder
        self._program = program
        self.kept = folder / ".dlicmd"

    def __call__(
        self, *arguments: str, code: int = 0, stdin: str = "", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        ended = subprocess.run(
            [sys.executable, str(self._program), *arguments],
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder), "COLUMNS": "120", **variables},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ended.returncode == code, (ended.stdout, ended.stderr)
        assert "Traceback" not in ended.stderr
        return ended

    def keep_logon(self, server: RecordedServer, token: str = TOKEN) -> None:
        self.kept.write_text(json.dumps({"logons": {server.address: {"token": token}}, "last": server.address}))
