"""Solvers of conda: the one that this host has, the command that makes an environment, and failures in words."""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from workers.executor.environments.requirements import Wanted

__all__ = ["SOLVERS", "cause_in", "command_for", "solver_in", "variables_for"]

#: Programs that can make an environment of conda, the preferred one first. Their options used here are the same.
SOLVERS: Final = ("micromamba", "mamba", "conda")
#: Name in a list of channels that stands for no further ones than the listed.
_NO_OTHERS: Final = "nodefaults"
_ANY_PYTHON: Final = "python >=3.11"
_PYTHON: Final = re.compile(r"(.*::)?python\b(?![\w.-])")
#: Beginning of what went wrong, in the output of each solver, and of what it adds for people at a terminal.
_WRONG: Final = re.compile(r"\s*(?:\w*Error:|error\b|critical\b)\s*(?:libmamba\b)?\s*", re.IGNORECASE)
_ADDED: Final = re.compile(r"\s*(?:Current channels|Next steps|Cause|To search for|critical\b)", re.IGNORECASE)
_MOST_LINES: Final = 12


def solver_in(path: str | None = None) -> str:
    """Return the name of the solver on this path, by default that of the process; "": there is none."""
    return next((name for name in SOLVERS if shutil.which(name, path=path)), "")


def command_for(solver: str, wanted: Wanted, prefix: Path) -> list[str]:
    """Return the command that makes the environment. solver: path of the program."""
    listed = [name for name in wanted.channels if name != _NO_OTHERS]
    channels = [word for name in listed for word in ("--channel", name)]
    alone = ["--override-channels"] if _NO_OTHERS in wanted.channels else []
    has_python = any(_PYTHON.match(each) for each in wanted.conda)
    python = [] if has_python else [f"python {wanted.python}" if wanted.python else _ANY_PYTHON]
    return [solver, "create", "--yes", "--quiet", "--prefix", str(prefix), *alone, *channels, *wanted.conda, *python]


def variables_for(cache: Path) -> dict[str, str]:
    """Return variables by which solvers keep packages beside the environments, on the same file system."""
    places = {"CONDA_PKGS_DIRS": str(cache / "pkgs"), "MAMBA_ROOT_PREFIX": str(cache)}
    return {**places, "CONDA_NUMBER_CHANNEL_NOTICES": "0"}


def cause_in(output: Sequence[str]) -> str:
    """Return what went wrong, on one line; "": the output does not say it."""
    begins = next((place for place, line in enumerate(output) if _WRONG.match(line)), None)
    if begins is None:
        return ""
    said: list[str] = []
    for line in output[begins : begins + _MOST_LINES]:
        if said and _ADDED.match(line):
            break
        said.append(line if said else _WRONG.sub("", line, count=1))
    return " ".join(" ".join(said).split())
