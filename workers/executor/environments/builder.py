"""Build of a virtual environment by uv, with the cluster's packages behind its own on the path.

uv ignores site packages behind a virtual environment, and would install torch again for any package that needs it. So
uv gets an empty wheel with the cluster's version for each protected package, and a constraint to that version. A
required package that the cluster has in a fitting version gets such a wheel, too, and is preferred to the index's
versions. The packages that uv then resolves besides these are installed without dependencies.
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
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from packaging.utils import canonicalize_name
from tidepool import procfs
from tidepool.env import site_of
from uv import find_uv_bin

from workers.executor.environments.requirements import Wanted, is_protected

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
    required: Wanted,
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
            output.write(f"Installing {', '.join(required.packages)}.\n".encode())
            output.flush()
            _Build(folder, work, dict(environment), output, wanted).run(required, there)
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

    def run(self, required: Wanted, there: Mapping[str, str]) -> None:
        work = self._work
        kept = _stubs(work / "stubs", {name: version for name, version in there.items() if is_protected(name)})
        met = _stubs(work / "stubs", {name: version for name, version in required.met.items() if name not in kept})
        (work / "wanted.txt").write_text(_text(required.options, required.packages))
        (work / "kept.txt").write_text(_text(_pins(kept)))
        # uv prefers the versions of an earlier result.
        resolved = work / "resolved.txt"
        resolved.write_text(_text(_pins(met)))
        python = str(self._folder / "bin" / "python")
        self._uv("venv", "--python", sys.executable, str(self._folder))
        kept_out = [word for name in kept for word in ("--no-emit-package", name)]
        written = ["-o", str(resolved), "--no-header", "--no-annotate"]
        # The option replaces UV_FIND_LINKS: pass the variable's values, too.
        links = [*filter(None, self._environment.get("UV_FIND_LINKS", "").split(",")), str(work / "stubs")]
        offered = ["--constraint", str(work / "kept.txt"), *(word for link in links for word in ("--find-links", link))]
        # pip takes a version from any of the indexes that the user names, too.
        strategy = ["--index-strategy", "unsafe-best-match"] if required.options else []
        self._uv(
            *("pip", "compile", str(work / "wanted.txt"), *offered, *written, *kept_out, *strategy, "--python", python)
        )
        own = {line.lower() for line in _pins(met)}
        packages = [line for line in resolved.read_text().splitlines() if line.strip() and line.lower() not in own]
        if packages:
            resolved.write_text(_text(required.options, [_with_hashes(line, required.hashes) for line in packages]))
            self._uv("pip", "install", "--no-deps", *strategy, "--python", python, "-r", str(resolved))
        cluster = f"import site; site.addsitedir({str(site_of(Path(sys.prefix)))!r})\n"
        (site_of(self._folder) / "_cluster.pth").write_text(cluster)
        (self._folder / _MARKER).write_text(json.dumps({"requirements": required.packages}))

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
                    else "no training waits for the environment any longer"
                )


def _stubs(folder: Path, protected: Mapping[str, str]) -> dict[str, str]:
    """Write an empty wheel of each package; return their local versions, which no index has, by name."""
    folder.mkdir(exist_ok=True)
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


def _text(*parts: Iterable[str]) -> str:
    return "".join(f"{line}\n" for part in parts for line in part)


def _pins(versions: Mapping[str, str]) -> list[str]:
    return [f"{name}=={version}" for name, version in versions.items()]


def _with_hashes(line: str, hashes: Mapping[str, Sequence[str]]) -> str:
    """Return the line of a resolved package with its hashes, which uv checks."""
    name = canonicalize_name(re.split(r"[=@ ;\[]", line, maxsplit=1)[0])
    return " ".join([line, *(f"--hash={each}" for each in hashes.get(name, ()))])


def _last_lines(log: Path, begins: int) -> str:
    size = os.stat(log).st_size
    with log.open("rb") as file:
        file.seek(max(begins, size - _TAIL_BYTES))
        text = file.read().decode(errors="replace")
    lines = [line.rstrip() for line in text.splitlines() if line.strip() and not line.startswith("$ uv")]
    return "\n".join(lines[-_HEADLINE_LINES:]).replace("+cluster", "") or "uv failed without output"
