"""Folders in folders, more than Python's own functions for trees go into."""

from pathlib import Path

__all__ = ["make_deep"]


def make_deep(folder: Path) -> None:
    for _ in range(1500):
        folder = folder / "d"
        folder.mkdir()
