"""Build of a virtual environment by uv: a layer over the cluster's packages, or a whole one.

A layer has the cluster's packages behind its own on the path. uv ignores site packages behind a virtual environment,
and would install torch again for any package that needs it. So uv gets an empty wheel with the cluster's version for
each protected package, and a constraint to that version. A required package that the cluster has in a fitting version
gets such a wheel, too, and is preferred to the index's versions. The packages that uv then resolves besides these are
installed without dependencies.

A whole environment has a Python that was asked for, all of what is required, and what the runtime needs there, resolved
together. Of what may have any version it has the cluster's. uv links files from its cache, so that a second environment
with the same torch takes little space.

An environment of conda is made by the solver that the host has, in a folder of its own; uv adds what pip shall install.

An image or a folder that an administrator has named is an environment as it is. Beside it, what the runtime needs and
it lacks is installed for its Python, and beside an environment of conda, too.
"""

import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Final

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from tidepool import procfs
from tidepool.env import site_of
from tidepool.safe_open import open_ours
from uv import find_uv_bin

from workers.executor.environments.conda import SOLVERS, cause_in, command_for, solver_in, variables_for
from workers.executor.environments.disk import size_on_disk
from workers.executor.environments.given import Contents, FolderError, python_of, read_contents
from workers.executor.environments.images import ImageError, image_engine, inspected, needs_folder
from workers.executor.environments.requirements import (
    RUNTIME_NEEDS,
    TORCH_NEEDS,
    Wanted,
    is_met,
    is_protected,
    package_in,
)

__all__ = ["NOT_WANTED", "BuildError", "Built", "Unsolvable", "build", "built_at", "opened_log"]

logger = logging.getLogger(__name__)

_MARKER: Final = "complete.json"
_LONGEST_SECONDS: Final = 1800.0
_LOOK_SECONDS: Final = 0.2
_LIST_SECONDS: Final = 60.0
#: Implementation and variant of Pythons that wheels are built for.
_USUAL: Final = ("cpython", "default")
#: Number of uv's last lines in the message of a failure.
_HEADLINE_LINES: Final = 6
_TAIL_BYTES: Final = 16 * 1024
_NO_SOLUTION: Final = "No solution found"
#: Reason why a build is given up.
NOT_WANTED: Final = "no training waits for the environment any longer"


class BuildError(Exception):
    """The environment could not be built; the text is uv's last lines."""


class Unsolvable(BuildError):
    """No versions of the packages fit together."""


@dataclass(frozen=True)
class Built:
    """A complete environment."""

    requirements: tuple[str, ...]
    is_whole: bool = False
    #: Version of the Python of a whole one, and of its torch; "": it has none.
    python: str = ""
    torch: str = ""
    #: Container image that is the environment, or virtual or conda environment of this host that is.
    image: str = ""
    given: str = ""
    #: Version of each package in the image or folder, by name; origins and digest of the folder's contents.
    packages: Mapping[str, str] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    digest: str = ""
    #: Size of its files, which may be shared with other environments by links.
    size_bytes: int = 0


def built_at(folder: Path) -> Built | None:
    """Return what was built there; None: nothing, or not to its end."""
    try:
        return Built(**json.loads((folder / _MARKER).read_text()))
    except (FileNotFoundError, NotADirectoryError):
        return None


def build(
    folder: Path,
    required: Wanted,
    there: Mapping[str, str],
    *,
    environment: Mapping[str, str],
    log: Path,
    wanted: Callable[[], bool],
    agreed: Path | None = None,
) -> None:
    """Build the environment at `folder`, or leave nothing there. Raises BuildError.

    agreed: file with the versions that the first host to build it has found, which others keep to.

    there: versions of the cluster's packages, by name.
    wanted: polled; the build is abandoned once it returns False.
    """
    shutil.rmtree(folder, ignore_errors=True)
    work = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        with opened_log(log) as output:
            output.write(f"{_what_is_done(required)}.\n".encode())
            output.flush()
            _Build(folder, work, dict(environment), output, wanted, agreed).run(required, there)
    except (BuildError, ImageError, OSError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, ImageError):
            raise BuildError(str(error)) from error
        if isinstance(error, OSError):
            raise BuildError(f"the environment cannot be written ({error.strerror or error})") from error
        raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _what_is_done(required: Wanted) -> str:
    if required.image:
        return f"Pulling {required.image}"
    if required.given:
        return f"Preparing this host for the environment in {required.given}"
    if required.conda:
        return f"Making an environment of conda with {', '.join(required.conda)}"
    way = " into an environment of its own" if required.is_whole else ""
    return f"Installing {', '.join(required.packages) or 'Python'}{way}"


class _Build:
    def __init__(
        self,
        folder: Path,
        work: Path,
        environment: dict[str, str],
        output: IO[bytes],
        wanted: Callable[[], bool],
        agreed: Path | None,
    ) -> None:
        self._agreed = agreed
        self._folder, self._work, self._output, self._wanted = folder, work, output, wanted
        self._environment = environment
        self._deadline = time.monotonic() + _LONGEST_SECONDS

    def run(self, required: Wanted, there: Mapping[str, str]) -> None:
        if required.image:
            built = self._image(required)
        elif required.contents is not None:
            built = self._given(required, required.contents)
        elif required.conda:
            built = self._conda(required)
        else:
            built = self._whole(required, there) if required.is_whole else self._layer(required, there)
        complete = replace(built, size_bytes=size_on_disk(self._folder))
        (self._folder / _MARKER).write_text(json.dumps(asdict(complete)))

    def _layer(self, required: Wanted, there: Mapping[str, str]) -> Built:
        work = self._work
        kept = _stubs(work / "stubs", {name: version for name, version in there.items() if is_protected(name)})
        met = _stubs(work / "stubs", {name: version for name, version in required.met.items() if name not in kept})
        self._make(sys.executable)
        others = [line for line in self._found_before() if _name_in(line) not in met]
        resolved = self._resolve(required, required.packages, [*_pins(met), *others], *self._offered(kept))
        own = {line.lower() for line in _pins(met)}
        own_lines = [line for line in resolved if line.lower() not in own]
        self._install(required, own_lines)
        self._agree(own_lines)
        cluster = f"import site; site.addsitedir({str(site_of(Path(sys.prefix)))!r})\n"
        (site_of(self._folder) / "_cluster.pth").write_text(cluster)
        return Built(required.packages)

    def _offered(self, kept: Mapping[str, str]) -> list[str]:
        """Return options by which uv takes packages that are there for as they are. kept: version of each stub."""
        constraints = self._work / "kept.txt"
        constraints.write_text(_text(_pins(kept)))
        # The option replaces UV_FIND_LINKS: pass the variable's values, too.
        links = [*filter(None, self._environment.get("UV_FIND_LINKS", "").split(",")), str(self._work / "stubs")]
        places = [word for link in links for word in ("--find-links", link)]
        kept_out = [word for name in kept for word in ("--no-emit-package", name)]
        return ["--constraint", str(constraints), *places, *kept_out]

    def _whole(self, required: Wanted, there: Mapping[str, str]) -> Built:
        self._make(self._python(required.python))
        packages, preferred = [*required.packages, *RUNTIME_NEEDS], self._found_before() or _preferred(there)
        resolved = self._resolve(required, packages, preferred)
        torch = _version_in(resolved, "torch")
        if torch:
            resolved = self._resolve(required, [*packages, *TORCH_NEEDS], preferred)
        self._install(required, resolved)
        self._agree(resolved)
        found = re.search(r"(?m)^version_info\s*=\s*(\S+)", (self._folder / "pyvenv.cfg").read_text())
        assert found, "uv writes the version of Python"
        return Built(required.packages, is_whole=True, python=found[1], torch=torch)

    def _found_before(self) -> list[str]:
        """Return the lines that another host has agreed on; none if this is the first to build it."""
        try:
            return self._agreed.read_text().splitlines() if self._agreed is not None else []
        except FileNotFoundError:
            return []
        except OSError as error:
            logger.warning("%s cannot be read, versions are found anew: %s", self._agreed, error)
            return []

    def _agree(self, resolved: Iterable[str]) -> None:
        """Have other hosts keep to these lines, unless a host was faster."""
        if self._agreed is None:
            return
        mine = self._agreed.with_name(f".{self._agreed.name}.{uuid.uuid4().hex}")
        try:
            self._agreed.parent.mkdir(parents=True, exist_ok=True)
            mine.write_text(_text(resolved))
            with suppress(FileExistsError):
                os.link(mine, self._agreed)
            mine.unlink()
        except OSError as error:  # a file system without links, or a full one
            logger.warning("%s cannot be written, other hosts may find other versions: %s", self._agreed, error)

    def _image(self, required: Wanted) -> Built:
        """Pull the image, and install beside it what the runtime needs and the image lacks."""
        engine = image_engine(self._environment)
        if not engine.has(required.image):
            engine.pull(required.image, self._work, self._run)
        image = inspected(required.image, engine)
        self._install_needs(required, image.packages, "--python-version", image.python)
        torch = image.packages.get("torch", "")
        return Built((), True, image.python, torch, image=required.image, packages=image.packages)

    def _given(self, required: Wanted, held: Contents) -> Built:
        self._install_needs(required, held.packages, "--python", str(python_of(held.folder)))
        return Built(
            (),
            True,
            held.python,
            held.packages.get("torch", ""),
            given=required.given,
            packages=held.packages,
            origins=held.origins,
            digest=held.digest,
        )

    def _conda(self, required: Wanted) -> Built:
        path = self._environment.get("PATH")
        name = solver_in(path)
        if not name:
            raise BuildError(
                f"packages of conda are required, and this host has none of {', '.join(SOLVERS)} on the PATH of its "
                "executor: have an administrator install one there"
            )
        prefix, solver = self._folder / "conda", str(shutil.which(name, path=path))
        self._environment |= variables_for(self._folder.parent / "conda")
        self._run(command_for(solver, required, prefix))
        if required.packages:
            file = self._work / "pip.txt"
            file.write_text(
                _text(required.options, [_with_hashes(line, required.hashes) for line in required.packages])
            )
            self._uv("pip", "install", *_strategy(required), "--python", str(python_of(prefix)), "-r", str(file))
        try:
            held = read_contents(prefix, self._environment)
        except FolderError as error:
            raise BuildError(str(error)) from None
        self._install_needs(required, held.packages, "--python", str(python_of(prefix)))
        facts = (held.python, held.packages.get("torch", ""))
        return Built((), True, *facts, given=str(prefix), packages=held.packages, origins=held.origins)

    def _install_needs(self, required: Wanted, there: Mapping[str, str], *python: str) -> None:
        """Install what the runtime needs and is not there in a fitting version; all else stays as it is.

        there: versions of packages, by name. python: options that say for which Python.
        """
        needs_folder(self._folder).mkdir(parents=True)
        needs = [*RUNTIME_NEEDS, *(TORCH_NEEDS if "torch" in there else ())]
        lacking = [need for need in needs if not is_met(package_in(need), there)]
        if not lacking:
            return
        names = {package_in(need).name for need in lacking}
        kept = {name: version for name, version in there.items() if name not in names and _is_version(version)}
        for_python = [*python, "--only-binary", ":all:"]
        resolved = self._resolve(required, lacking, (), *self._offered(_stubs(self._work / "stubs", kept)), *for_python)
        file = self._work / "install.txt"
        file.write_text(_text(resolved))
        place = str(needs_folder(self._folder))
        self._uv("pip", "install", "--no-deps", *for_python, "--target", place, "-r", str(file))

    def _python(self, versions: str) -> str:
        """Return the Python of this host that the environment is for: the oldest that fits has the most wheels."""
        if not versions:
            return sys.executable
        found, fitting = self._fitting(versions)
        if not fitting and self._environment.get("UV_PYTHON_DOWNLOADS", "never") != "never":
            self._uv("python", "install", versions)
            found, fitting = self._fitting(versions)
        if not fitting:
            raise BuildError(
                f"the training asks for Python {versions}, and this host has {', '.join(found) or 'none'}: install one "
                "that fits on the host, or ask for another in requires-python, .python-version or a line such as "
                "--python >=3.11"
            )
        return found[fitting[0]]

    def _fitting(self, versions: str) -> tuple[dict[str, str], list[str]]:
        """Return the paths of all Pythons by version, and the versions that will do, the oldest first."""
        found, limits = self._pythons(), SpecifierSet(versions)
        return found, [version for version in sorted(found, key=Version) if limits.contains(version)]

    def _pythons(self) -> dict[str, str]:
        """Return the paths of the Pythons that uv finds here, by version."""
        words = ("python", "list", "--only-installed", "--output-format", "json", "--no-config")
        listed = subprocess.run(
            [find_uv_bin(), *words],
            cwd=self._work,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._output,
            timeout=_LIST_SECONDS,
            check=False,
        )
        if listed.returncode != 0:
            raise BuildError("uv cannot list the Pythons of this host")
        usual = [one for one in json.loads(listed.stdout) if (one["implementation"], one["variant"]) == _USUAL]
        return {one["version"]: one["path"] for one in reversed(usual)}

    def _make(self, python: str) -> None:
        self._uv("venv", "--python", python, str(self._folder))

    def _resolve(
        self, required: Wanted, packages: Sequence[str], preferred: Sequence[str], *options: str
    ) -> Sequence[str]:
        """Return lines such as `timm==1.0.9`. Raises Unsolvable.

        preferred: lines of the same form. uv takes them for the result of an earlier run and keeps to them.
        """
        wanted, resolved = self._work / "wanted.txt", self._work / "resolved.txt"
        wanted.write_text(_text(required.options, packages))
        resolved.write_text(_text(preferred))
        written = ["-o", str(resolved), "--no-header", "--no-annotate"]
        is_built = not (required.image or required.given or required.conda)
        python = ["--python", str(self._folder / "bin" / "python")] if is_built else []
        self._uv("pip", "compile", str(wanted), *options, *written, *_strategy(required), *python)
        return [line for line in resolved.read_text().splitlines() if line.strip() and not line.startswith("--")]

    def _install(self, required: Wanted, packages: Sequence[str]) -> None:
        if not packages:
            return
        file = self._work / "install.txt"
        file.write_text(_text(required.options, [_with_hashes(line, required.hashes) for line in packages]))
        python = ["--python", str(self._folder / "bin" / "python")]
        self._uv("pip", "install", "--no-deps", *_strategy(required), *python, "-r", str(file))

    def _uv(self, *words: str) -> None:
        self._run([find_uv_bin(), *words, "--no-config", "--color", "never", "--no-progress"])

    def _run(self, words: Sequence[str]) -> None:
        begins = os.fstat(self._output.fileno()).st_size
        name = Path(words[0]).name
        self._output.write(f"$ {name} {' '.join(words[1:3])}\n".encode())
        self._output.flush()
        process = subprocess.Popen(
            words,
            cwd=self._work,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            start_new_session=True,
        )
        self._wait(process)
        if process.returncode != 0:
            said = _lines_since(self._output, begins)
            kind = Unsolvable if any(_NO_SOLUTION in line for line in said) else BuildError
            last = "\n".join(said[-_HEADLINE_LINES:]) or f"{name} failed without output"
            raise kind(cause_in(said) or last if name in SOLVERS else last)

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
                    f"the build took longer than {_LONGEST_SECONDS / 60:.0f} minutes" if is_late else NOT_WANTED
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


def _strategy(required: Wanted) -> list[str]:
    """Return uv's options for packages that several indexes have: pip takes a version from any that the user names."""
    return ["--index-strategy", "unsafe-best-match"] if required.options else []


def _version_in(resolved: Iterable[str], name: str) -> str:
    return next((line.partition("==")[2].split()[0] for line in resolved if line.startswith(f"{name}==")), "")


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def _text(*parts: Iterable[str]) -> str:
    return "".join(f"{line}\n" for part in parts for line in part)


def _pins(versions: Mapping[str, str]) -> list[str]:
    return [f"{name}=={version}" for name, version in versions.items()]


def _preferred(versions: Mapping[str, str]) -> list[str]:
    """Return pins to versions, and to those that an index has for local ones, such as 2.13.0 for 2.13.0+cpu."""
    public = {name: version.partition("+")[0] for name, version in versions.items() if "+" in version}
    return [*_pins(versions), *_pins(public)]


def _with_hashes(line: str, hashes: Mapping[str, Sequence[str]]) -> str:
    """Return the line of a resolved package with its hashes, which uv checks."""
    return " ".join([line, *(f"--hash={each}" for each in hashes.get(_name_in(line), ()))])


def _name_in(line: str) -> str:
    """Return the name of a resolved package."""
    return canonicalize_name(re.split(r"[=@ ;\[]", line, maxsplit=1)[0])


def opened_log(log: Path) -> IO[bytes]:
    """Open a build's log, which is in the folder of an attempt, where ranks on other hosts may have put links."""
    return open(open_ours(log, os.O_RDWR | os.O_CREAT | os.O_APPEND, parts=3), "ab")


def _lines_since(log: IO[bytes], begins: int) -> list[str]:
    """Return uv's last lines in a log from that byte on."""
    size = os.fstat(log.fileno()).st_size
    begins = max(begins, size - _TAIL_BYTES)
    text = os.pread(log.fileno(), size - begins, begins).decode(errors="replace").replace("+cluster", "")
    return [line.rstrip() for line in text.splitlines() if line.strip() and not line.startswith("$ ")]
