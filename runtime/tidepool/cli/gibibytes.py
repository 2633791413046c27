"""A size of memory on the command line, as whole GiB."""

from typing import Any

import click

from tidepool.units import size_in, size_words

__all__ = ["Gibibytes"]

_GIB = 1024**3


class Gibibytes(click.ParamType[int]):
    """Whole GiB, from a size such as 96GiB or 0.5T. A number alone, as in a file of a job, counts GiB."""

    name = "size"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        size = size_in(value)
        if size is None or size < _GIB:
            self.fail(f"{value!r} is not a size of 1 GiB or more: write it like 96GiB.", parameter, context)
        if size % _GIB:
            self.fail(f"{size_words(size)} is not a whole number of GiB: round it up.", parameter, context)
        return size // _GIB
