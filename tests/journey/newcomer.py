"""Somebody who has nothing of Tidepool's but a site's address: a Python of their own, an empty home, and no network."""

import os
import re
import shutil
import subprocess
import venv
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import httpx
from packaging.requirements import Requirement

from tests.journey.running_stack import RunningStack
from tests.waiting import PATIENCE_SECONDS

__all__ = ["Newcomer"]

_CODE = re.compile(r"confirm the code ([A-Z0-9]{4}-[A-Z0-9]{4})")


class Newcomer:
    """top: a folder of theirs, below which everything lies; the shell works in `work/`."""

    def __init__(self, top: Path, stack: RunningStack) -> None:
        self.top, self.stack = top, stack
        self.work = top / "work"
        self.work.mkdir()
        self._python = top / "env"
        venv.create(self._python, symlinks=True)
        kept = {name: value for name, value in os.environ.items() if name in ("LANG", "TZ")}
        self.environment = kept | {
            "HOME": str(top),
            "PATH": f"{self._python / 'bin'}:/usr/bin:/bin",
            # Nothing is fetched from elsewhere: what the client requires is there, as from a mirror.
            "PIP_NO_INDEX": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }
        self.has("pip")  # to unpack another takes seconds
        pip = self._python / "bin" / "pip"
        pip.write_text(f"#!{self.python}\nfrom pip._internal.cli.main import main\nraise SystemExit(main())\n")
        pip.chmod(0o755)

    def has(self, *names: str) -> None:
        """Put packages of the tests' environment into theirs, with what they require."""
        [packages] = self._python.glob("lib/python*/site-packages")
        for name in _required(names):
            found = metadata.distribution(name)
            for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
                if not (packages / top).exists():
                    (packages / top).symlink_to(Path(str(found.locate_file(top))))

    def says(self, words: str, *, codes: tuple[int, ...] = (0,), **variables: str) -> subprocess.CompletedProcess[str]:
        """Run lines of the newcomer's shell, of which each must end well, and return their output."""
        found = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", words],
            cwd=self.work,
            env=self.environment | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE_SECONDS,
            check=False,
        )
        assert found.returncode in codes, f"{words}\n-> {found.returncode}\n{found.stdout}\n{found.stderr}"
        return found

    def logs_in(self, line: str) -> str:
        """Run a line that logs in, and confirm its code in a browser; what the program says at the end."""
        words = line.split()
        program = subprocess.Popen(
            [shutil.which(words[0], path=self.environment["PATH"]) or words[0], *words[1:]],
            cwd=self.work, env=self.environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert program.stderr is not None
        with program, program.stderr as said:
            seen = ""
            while not (code := _CODE.search(seen)):
                line = said.readline()
                assert line, f"it shows no code: {seen}"
                seen += line
            self._confirms(code[1])
            rest = said.read()
        assert program.returncode == 0, seen + rest
        return rest

    def _confirms(self, code: str) -> None:
        with httpx.Client(base_url=self.stack.url, timeout=60, trust_env=False, follow_redirects=True) as browser:
            browser.get("/login/")
            login = {"username": "admin", "password": self.stack.password}
            browser.post("/login/", data=login | _csrf(browser)).raise_for_status()
            assert code in browser.get("/device/", params={"code": code}).text
            browser.post("/device/", data={"code": code, "answer": "yes"} | _csrf(browser)).raise_for_status()

    @property
    def python(self) -> str:
        return str(self._python / "bin" / "python")


def _csrf(browser: httpx.Client) -> dict[str, str]:
    [token] = [cookie.value for cookie in browser.cookies.jar if "csrf" in cookie.name]
    return {"csrfmiddlewaretoken": token or ""}


def _required(names: tuple[str, ...]) -> Iterator[str]:
    """These packages and all that they require here."""
    waiting, seen = list(names), set[str]()
    while waiting:
        name = waiting.pop()
        if name.lower() in seen:
            continue
        seen.add(name.lower())
        yield name
        asked = [Requirement(line) for line in metadata.requires(name) or ()]
        waiting += [each.name for each in asked if each.marker is None or each.marker.evaluate({"extra": ""})]
