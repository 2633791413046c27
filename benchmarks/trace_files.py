"""The traces of `benchmarks/traces` (Apache License 2.0, see README.md there) as the simulator takes them."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import ceil
from pathlib import Path

from scheduling.replay.profiles import Application, application

__all__ = ["GPUS_PER_HOST", "HOSTS", "ONE_GPU", "Submission", "applications", "trace", "traces"]

FOLDER = Path(__file__).with_name("traces")
#: The cluster that the traces were made for.
HOSTS, GPUS_PER_HOST = 16, 4
#: The training that had one GPU in the published runs, whatever was asked for it.
ONE_GPU = "ncf"


@dataclass(frozen=True)
class Submission:
    """A line of a trace: `gpus` and `batch` are what its user asked for."""

    name: str
    at: float
    application: Application
    gpus: int
    batch: int


@cache
def applications() -> Mapping[str, Application]:
    return {
        folder.name: application(folder.name, {file.name: file.read_text() for file in folder.glob("*.csv")})
        for folder in sorted((FOLDER / "profiles").iterdir())
    }


def traces() -> dict[str, Path]:
    """Name -> file: `workload-6`, and `workload-1-half` at half the load."""
    found = {file.stem: file for file in sorted((FOLDER / "workloads").glob("*.csv"))}
    return found | {f"{file.stem}-half": file for file in sorted((FOLDER / "workloads-0.5").glob("*.csv"))}


def trace(name: str, load: float = 1.0) -> list[Submission]:
    """The submissions of a trace in order of time. With `load`, there are so many times as many in each hour: a further
    one repeats one of the trace before the next one comes, on average."""
    found, turns = _submissions(name), ceil(load)
    gap = found[-1].at / len(found)
    for turn in range(1, turns):
        part, shift = min(1.0, load - turn), turn * gap / turns
        for number, one in enumerate(_submissions(name)):
            if int((number + 1) * part) > int(number * part):
                found.append(replace(one, name=f"{one.name}+{turn}", at=one.at + shift))
    return sorted(found, key=lambda submission: submission.at)


def _submissions(name: str) -> list[Submission]:
    with traces()[name].open() as file:
        return [
            Submission(
                row["name"],
                float(row["time"]),
                applications()[row["application"]],
                int(row["num_replicas"]),
                int(row["batch_size"]),
            )
            for row in csv.DictReader(file)
        ]
