"""Requirements in conda's `environment.yml`. Pure.

Its packages are met by the cluster's where they can be. Where one cannot, and a host has a solver of conda, all of them
become lines of packages that conda installs.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import yaml
from tidepool.requirement_files import Line, all_lines

from jobs.actions.requirement_lines import RequirementsError
from workers.executor.environments.requirements import CHANNELS_OPTION, CONDA_OPTION

__all__ = ["for_conda", "lines_of_conda"]


def lines_of_conda(text: str, file: str) -> Iterator[Line]:
    """Yield the channels, the packages of conda, and the lines under `pip`. Raises RequirementsError."""
    try:
        read: Any = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise RequirementsError(f"{file} is not valid YAML ({error}): correct it.") from None
    if not isinstance(read, dict):
        return
    listed, channels = read.get("dependencies"), read.get("channels")
    if isinstance(channels, list) and channels:
        names = " ".join(map(str, channels))
        yield Line(file, _number(text, str(channels[0])), f"{CHANNELS_OPTION} {names}")
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, dict):
            for line in each.get("pip") or ():
                yield from (Line(file, _number(text, str(line)), found.text) for found in all_lines(str(line), file))
        else:
            yield Line(file, _number(text, str(each)), str(each), is_conda=True)


def for_conda(lines: Iterable[Line]) -> Iterator[Line]:
    """Yield the same lines, with packages of conda as what conda shall install."""
    for line in lines:
        yield replace(line, text=f"{CONDA_OPTION} {line.text}", is_conda=False) if line.is_conda else line


def _number(text: str, line: str) -> int:
    """Return the number of the first line of the file that contains this one."""
    return next((number for number, each in enumerate(text.splitlines(), start=1) if line in each), 1)
