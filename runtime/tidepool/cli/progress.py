"""Progress bar of uploads and downloads on a terminal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tidepool.client.training import Progress

__all__ = ["bar"]


@contextmanager
def bar(words: str, *, is_shown: bool) -> Iterator[Progress | None]:
    """Yield a callback for bytes done and total; None, without a bar, if stderr is not a terminal."""
    if not is_shown or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bars

    kinds = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bars(*kinds, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(words, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)
