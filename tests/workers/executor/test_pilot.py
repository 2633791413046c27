"""What a pilot reads from the batch system, and what it refuses."""

from collections.abc import Callable
from pathlib import Path

import pytest

from workers.executor.pilot import (
    Batch,
    PilotError,
    batch_in,
    command_of,
    refuse_part_of_node,
    seconds_of,
    variables_for,
    without_notice,
)

NOW = 1_700_000_000.0


def left(text: str) -> Callable[[str], str]:
    return lambda job: text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1:55", 115), ("2:03:04", 7384), ("1-02:03:04", 93784), ("0:00", 0), ("UNLIMITED\n", None), ("INVALID", None)],
)
def test_slurms_times_are_read(text: str, seconds: float | None) -> None:
    assert seconds_of(text) == seconds


def test_a_job_of_slurm_names_its_host_and_its_end() -> None:
    job = {"SLURM_JOB_ID": "17", "SLURM_JOB_NUM_NODES": "1", "SLURM_NODEID": "0", "SLURM_GPUS_ON_NODE": "8"}
    assert batch_in(job, NOW, left("12:00:00\n")) == Batch("slurm-17", NOW + 43200, 8)
    nodes = {**job, "SLURM_JOB_NUM_NODES": "2", "SLURM_NODEID": "1"}
    assert batch_in(nodes, NOW, left("1:00")).host == "slurm-17-1"


def test_another_batch_system_says_the_end_itself() -> None:
    assert batch_in({}, NOW, left(""), "+3600") == Batch("", NOW + 3600, None)


@pytest.mark.parametrize(
    ("environment", "time_left", "until", "why"),
    [
        ({}, "", "", "this is no job of Slurm"),
        ({"SLURM_JOB_ID": "17"}, "UNLIMITED\n", "", "this job has no wall time: give sbatch --time"),
        ({"SLURM_JOB_ID": "17"}, "0:00", "", "the job's end is over"),
        ({}, "", "tomorrow", "--until must be"),
        ({}, "", "-60", "the job's end is over|--until must be"),
    ],
)
def test_a_job_without_an_end_is_refused(environment: dict[str, str], time_left: str, until: str, why: str) -> None:
    with pytest.raises(PilotError, match=why):
        batch_in(environment, NOW, left(time_left), until)


def test_a_part_of_a_node_is_refused_where_the_rest_is_seen() -> None:
    refuse_part_of_node(Batch("a", NOW, 2), visible=2)
    refuse_part_of_node(Batch("a", NOW, None), visible=8)
    with pytest.raises(PilotError, match=r"the job has 2 of 8 GPUs .* --exclusive"):
        refuse_part_of_node(Batch("a", NOW, 2), visible=8)


def test_the_executor_knows_its_end_and_has_a_folder_of_its_own() -> None:
    words = command_of("slurm-17", Path("/pool"), ["--url", "https://gpus.example.org"])
    assert words[1:] == [
        *("-m", "workers.executor.join", "--name", "slurm-17", "--home", "/pool"),
        *("--url", "https://gpus.example.org"),
    ]
    assert variables_for(Batch("slurm-17", NOW, None), Path("/tmp/own")) == {
        "TIDEPOOL_RUN": "/tmp/own/run",
        "TIDEPOOL_LEAVING_AT": "1700000000",
        "TIDEPOOL_NOTICE_FILE": "/tmp/own/notice",
    }


def test_a_pilot_of_a_requeued_job_does_not_leave_at_the_notice_of_the_former_one(tmp_path: Path) -> None:
    folder = without_notice(tmp_path / "tidepool-slurm-17")
    notice = Path(variables_for(Batch("slurm-17", NOW, None), folder)["TIDEPOOL_NOTICE_FILE"])
    notice.write_text("+20")
    assert without_notice(folder) == folder
    assert not notice.exists()
