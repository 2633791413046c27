"""Requirements in conda's `environment.yml`. Pure."""

from collections.abc import Iterator
from typing import Any

import yaml
from tidepool.requirement_files import Line, all_lines

from jobs.actions.requirement_lines import RequirementsError

__all__ = ["lines_of_conda"]


def lines_of_conda(text: str, file: str) -> Iterator[Line]:
    """Yield the packages of conda, and the lines under `pip`. Raises RequirementsError."""
    try:
        read: Any = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise RequirementsError(f"{file} is not valid YAML ({error}): correct it.") from None
    listed = read.get("dependencies") if isinstance(read, dict) else None
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, dict):
            for line in each.get("pip") or ():
                yield from (Line(file, _number(text, str(line)), found.text) for found in all_lines(str(line), file))
        else:
            yield Line(file, _number(text, str(each)), str(each), is_conda=True)


def _number(text: str, line: str) -> int:
    """Return the number of the first line of the file that contains this one."""
    return next((number for number, each in enumerate(text.splitlines(), start=1) if line in each), 1)
