"""Output of every benchmark: medians with their range, and the ratio to a competitor measured in the same run."""

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["Result", "arguments", "dearer", "result", "show"]


@dataclass(frozen=True)
class Result:
    name: str
    unit: str
    median: float
    min: float
    max: float
    n: int
    #: Name of the competitor that `ratio` compares with.
    competitor: str | None = None
    #: This median over the competitor's.
    ratio: float | None = None


def arguments(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--long", action="store_true", help="the full length")
    return parser


def result(
    name: str, unit: str, values: Sequence[float], competitor: str | None = None, baseline: Sequence[float] = ()
) -> Result:
    values = [float(value) for value in values]
    median = statistics.median(values)
    ratio = median / statistics.median(baseline) if baseline else None
    return Result(name, unit, median, min(values), max(values), len(values), competitor, ratio)


def dearer(results: Sequence[Result], file: Path, units: Sequence[str]) -> list[str]:
    """Return what costs 30 % more than in the file of an earlier run, in words; only rows of these units count."""
    before = {one["name"]: one["median"] for one in json.loads(file.read_text()) if one["unit"] in units}
    return [
        f"{one.name}: {one.median:.3g} {one.unit}, {before[one.name]:.3g} before"
        for one in results
        if one.unit in units and one.name in before and one.median > 1.3 * before[one.name]
    ]


def show(results: list[Result], file: Path | None) -> None:
    for one in results:
        compared = f"  {one.ratio:.4g} x {one.competitor}" if one.ratio is not None else ""
        print(f"{one.name:32} {one.median:9.2f} {one.unit:4} [{one.min:.2f} to {one.max:.2f}] n={one.n}{compared}")
    if file:
        file.write_text(json.dumps([asdict(one) for one in results], indent=1) + "\n")
