"""Build of a virtual environment by uv, with the cluster's packages behind its own on the path.

uv ignores site packages behind a virtual environment, and would install torch again for any package that needs it. So
uv gets an empty wheel with the cluster's version for each protected package, and a constraint to that version. The
packages that uv then resolves besides these are installed without dependencies.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from tidepool import procfs
from tidepool.env import site_of
from uv import find_uv_bin

from workers.executor.environments.requirements import is_protected

__all__ = ["BuildError", "build", "is_complete"]

_MARKER: Final = "complete.json"
_LONGEST_SECONDS: Final = 1800.0
_LOOK_SECONDS: Final = 0.2
#: Number of uv's last lines in the message of a failure.
_HEADLINE_LINES: Final = 6
_TAIL_BYTES: Final = 16 * 1024
_VERSION: Final = re.compile(r"[^+]+")


class BuildError(Exception):
    """The environment could not be built; the text is uv's last lines."""


def is_complete(folder: Path) -> bool:
    return (folder / _MARKER).is_file()


def build(
    folder: Path,
    requirements: Sequence[str],
    there: Mapping[str, str],
    *,
    environment: Mapping[str, str],
    log: Path,
    wanted: Callable[[], bool],
) -> None:
    """Build the environment at `folder`, or leave nothing there. Raises BuildError.

    there: versions of the cluster's packages, by name.
    wanted: polled; the build is abandoned once it returns False.
    """
    shutil.rmtree(folder, ignore_errors=True)
    work = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        with log.open("ab") as output:
            output.write(f"Installing {', '.join(requirements)}.\n".encode())
            output.flush()
            _Build(folder, work, dict(environment), output, wanted).run(requirements, there)
    except (BuildError, OSError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise BuildError(f"the environment cannot be written ({error.strerror or error})") from error
        raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


class _Build:
    def __init__(
        self, folder: Path, work: Path, environment: dict[str, str], output: IO[bytes], wanted: Callable[[], bool]
    ) -> None:
        self._folder, self._work, self._output, self._wanted = folder, work, output, wanted
        self._environment = environment
        self._deadline = time.monotonic() + _LONGEST_SECONDS

    def run(self, requirements: Sequence[str], there: Mapping[str, str]) -> None:
        work = self._work
        stubs = _stubs(work / "stubs", {name: version for name, version in there.items() if is_protected(name)})
        (work / "wanted.txt").write_text("\n".join(requirements) + "\n")
        (work / "kept.txt").write_text("".join(f"{name}=={version}\n" for name, version in stubs.items()))
        python = str(self._folder / "bin" / "python")
        self._uv("venv", "--python", sys.executable, str(self._folder))
        kept_out = [word for name in stubs for word in ("--no-emit-package", name)]
        resolved = ["-o", str(work / "resolved.txt"), "--no-header", "--no-annotate"]
        # The option replaces UV_FIND_LINKS: pass the variable's values, too.
        links = [*filter(None, self._environment.get("UV_FIND_LINKS", "").split(",")), str(work / "stubs")]
        offered = ["--constraint", str(work / "kept.txt"), *(word for link in links for word in ("--find-links", link))]
        self._uv("pip", "compile", str(work / "wanted.txt"), *offered, *resolved, *kept_out, "--python", python)
        if (work / "resolved.txt").read_text().strip():
            self._uv("pip", "install", "--no-deps", "--python", python, "-r", str(work / "resolved.txt"))
        cluster = f"import site; site.addsitedir({str(site_of(Path(sys.prefix)))!r})\n"
        (site_of(self._folder) / "_cluster.pth").write_text(cluster)
        (self._folder / _MARKER).write_text(json.dumps({"requirements": list(requirements)}))

    def _uv(self, *words: str) -> None:
        begins = os.fstat(self._output.fileno()).st_size
        self._output.write(f"$ uv {' '.join(words[:2])}\n".encode())
        self._output.flush()
        process = subprocess.Popen(
            [find_uv_bin(), *words, "--no-config", "--color", "never", "--no-progress"],
            cwd=self._work,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            start_new_session=True,
        )
        self._wait(process)
        if process.returncode != 0:
            raise BuildError(_last_lines(Path(self._output.name), begins))

    def _wait(self, process: "subprocess.Popen[bytes]") -> None:
        while True:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_LOOK_SECONDS)
                return
            is_late = time.monotonic() > self._deadline
            if is_late or not self._wanted():
                for each in procfs.session_members(process.pid):
                    procfs.kill(each, signal.SIGKILL)
                process.wait()
                raise BuildError(
                    f"the build took longer than {_LONGEST_SECONDS / 60:.0f} minutes"
                    if is_late
                    else "no training waits for the environment any more"
                )


def _stubs(folder: Path, protected: Mapping[str, str]) -> dict[str, str]:
    """Write an empty wheel of each package; return their local versions, which no index has."""
    folder.mkdir()
    versions = {}
    for name, version in protected.items():
        local = version if "+" in version else f"{version}+cluster"
        file = name.replace("-", "_")
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {local}\n"
        wheel = "Wheel-Version: 1.0\nGenerator: tidepool\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        with zipfile.ZipFile(folder / f"{file}-{local}-py3-none-any.whl", "w") as archive:
            for part, text in (("METADATA", metadata), ("WHEEL", wheel), ("RECORD", "")):
                archive.writestr(f"{file}-{local}.dist-info/{part}", text)
        versions[name] = local
    return versions


def _last_lines(log: Path, begins: int) -> str:
    size = os.stat(log).st_size
    with log.open("rb") as file:
        file.seek(max(begins, size - _TAIL_BYTES))
        text = file.read().decode(errors="replace")
    lines = [line.rstrip() for line in text.splitlines() if line.strip() and not line.startswith("$ uv")]
    return "\n".join(lines[-_HEADLINE_LINES:]).replace("+cluster", "") or "uv failed without output"
