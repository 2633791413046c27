"""Readings that pages get apart from the database: few messages, and none that says what the page knows."""

from tidepool.protocol import Report, from_json

from jobs.control.live_readings import LiveReadings
from tests.jobs.cluster import FakeHost


def reported(at: float, *busy: float | None, host: str = "gpu-host-1") -> Report:
    values = FakeHost(host, slots=len(busy)).report(at=at)
    for device, percent in zip(values["devices"], busy, strict=True):
        device["utilisation_percent"] = percent
    return from_json(Report, values)


def test_small_changes_wait_until_they_add_up() -> None:
    readings = LiveReadings()
    assert readings.changes([reported(0, 50.0, 0.0)]) == {"gpu-host-1": {"0": 50.0, "1": 0.0}}
    assert readings.changes([reported(2, 54.0, 0.0)]) == {}
    assert readings.changes([reported(4, 55.0, 0.0)]) == {"gpu-host-1": {"0": 55.0}}


def test_a_gpu_that_begins_or_ceases_to_work_is_told_in_any_case() -> None:
    readings = LiveReadings()
    readings.changes([reported(0, 0.0, 3.0, 5.0)])
    assert readings.changes([reported(2, 1.0, 0.0, None)]) == {"gpu-host-1": {"0": 1.0, "1": 0.0, "2": None}}


def test_a_host_is_told_every_two_seconds_and_each_by_itself() -> None:
    readings = LiveReadings()
    readings.changes([reported(200, 50.0), reported(200, 50.0, host="gpu-host-2")])
    assert readings.changes([reported(201.9, 90.0), reported(202, 90.0, host="gpu-host-2")]) == {
        "gpu-host-2": {"0": 90.0}
    }
    assert readings.changes([reported(202.1, 90.0)]) == {"gpu-host-1": {"0": 90.0}}
    assert readings.changes([reported(100, 10.0)]) == {"gpu-host-1": {"0": 10.0}}, "after its clock was set back"
