"""The traces of `benchmarks/traces` (Apache License 2.0, see README.md there) as the simulator takes them."""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
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


def trace(name: str) -> Iterator[Submission]:
    with traces()[name].open() as file:
        for row in csv.DictReader(file):
            kind = applications()[row["application"]]
            yield Submission(row["name"], float(row["time"]), kind, int(row["num_replicas"]), int(row["batch_size"]))
