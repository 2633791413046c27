"""Runs of the simulator in a file, so that a long comparison can be made in pieces."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scheduling.replay.report import Figures

__all__ = ["Runs"]


class Runs:
    """Figures by what was played. Without a file, each run is played."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path is not None and path.exists() else []
        self._known = {_name(entry["run"]): Figures(**entry["figures"]) for entry in map(json.loads, lines)}

    def figures(self, run: Mapping[str, Any], play: Callable[[], Figures]) -> Figures:
        """Return the figures of this run; plays it if it is not known yet."""
        if _name(run) not in self._known:
            self._known[_name(run)] = found = play()
            if self._path is not None:
                with self._path.open("a") as file:
                    file.write(json.dumps({"run": run, "figures": asdict(found)}) + "\n")
        return self._known[_name(run)]


def _name(run: Mapping[str, Any]) -> str:
    return json.dumps(run, sort_keys=True)
