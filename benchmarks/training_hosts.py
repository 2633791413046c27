"""Hosts in the process of a benchmark, each with a training that holds all of its GPUs."""

from pathlib import Path
from typing import Any

__all__ = ["SLOTS", "TrainingHosts"]

SLOTS = 8


class TrainingHosts:
    def __init__(self, hosts: int) -> None:
        from tests.factories import (
            DatasetVersionFactory,
            InstanceGroupFactory,
            RegisteredModelVersionFactory,
            UserFactory,
        )
        from tests.jobs.cluster import Cluster

        self.cluster = Cluster.of(*(f"host-{number:04}" for number in range(hosts)), slots=SLOTS)
        InstanceGroupFactory(name="group")
        model = RegisteredModelVersionFactory(model__name="model")
        Path(model.path).mkdir(parents=True, exist_ok=True)
        (Path(model.path) / "main.py").write_text("print('training')\n")
        dataset = DatasetVersionFactory(dataset__name="data")
        Path(dataset.path).mkdir(parents=True, exist_ok=True)
        self._user = UserFactory(is_staff=True)
        self.jobs = self.start(hosts)
        self.step = 1

    def start(self, number: int) -> list[Any]:
        """Return so many new trainings after their first step."""
        from jobs import actions

        jobs = [
            actions.submit(
                actions.Submission(
                    name=f"training {place}",
                    model="model",
                    dataset="data",
                    instance_group="group",
                    min_slots=SLOTS,
                    max_slots=SLOTS,
                ),
                self._user,
            )
            for place in range(number)
        ]
        self.cluster.turn(2)
        for job in jobs:
            self.cluster.train(job)
        return jobs
