"""`/execs/{id}/log` and `/result`, as notebooks parse them."""

import io
import json
import os
import re
import zipfile
from contextlib import suppress
from pathlib import Path

import pandas
import pytest
from django.contrib.auth.models import User
from django.test import Client

from jobs.files.job_folder import job_folder
from jobs.models import Generation, Job, Rank
from jobs.states import RankState
from tests.factories import set_job
from tests.wmla.conftest import DLI, Submit, body_of, job_behind, started, write
from tests.wmla.training import write_log
from wmla.logs import as_json_string, train_line, train_log

pytestmark = pytest.mark.django_db

#: Line in the format of the driver's logger.
LINE = (
    "[2026-01-01 12:00:0{0}] Train,\tTimestamp: 176726880{0}000,\tGlobal steps: {0},\tIteration: {0},"
    "\tLoss: 0.5,\tAccuracy: 0.7\n"
)
GRAMMAR = re.compile(
    r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] Train,\tTimestamp: \d+,\tGlobal steps: \d+,\tIteration: \d+,"
    r"\tLoss: (-?\d+\.\d{5}|nan),\tAccuracy: -?\d+\.\d{5}\n"
)
DRIVER = "log/driver-20260101120000-0001-6ba7b811-9dad-51d1-80b4-00c04fd430c8.gpu-host-1/stdout"


def as_a_notebook_reads_it(text: str) -> list[tuple[str, ...]]:
    """Columns 4, 6, 8, 10 and 12 once colons are commas: timestamp, global steps, iteration, loss, accuracy."""
    rows = [line.split(",") for line in text.replace(":", ",").splitlines()]
    return [tuple(row[column].strip() for column in (4, 6, 8, 10, 12)) for row in rows]


def record(step: int, **values: object) -> str:
    return (
        json.dumps({"step": step, "epoch": 0, "at": 1767268800.5 + step, "loss": 0.5, "accuracy": 70.0, **values})
        + "\n"
    )


@pytest.fixture
def job(on_prem: Job) -> Job:
    return started(on_prem)


def ended_rank(job: Job, attempt: int = 1) -> Rank:
    """The only one of an attempt, which is over."""
    member_id = f"gpu-host-1.0.{attempt}"
    values = {"host": "gpu-host-1", "slot": 0, "pid": 1, "started_at": 1.0, "exit": {"code": 0}}
    rank = Rank.objects.create(job=job, attempt=attempt, member_id=member_id, state=RankState.EXITED, **values)
    members = [{"member_id": member_id, "rank": 0, "host": "gpu-host-1", "slot": 0}]
    Generation.objects.create(job=job, attempt=attempt, number=1, state="ENDED", world_size=1, members=members)
    return rank


def get(client: Client, job: Job, path: str, **headers: str) -> object:
    return client.get(
        f"{DLI}/execs/wmla-{job.pk}/{path}", headers={name.replace("_", "-"): each for name, each in headers.items()}
    )


class TestTrainLog:
    def test_it_is_exactly_the_drivers_file(self, alice_client: Client, job: Job) -> None:
        text = (
            "".join(LINE.format(step) for step in range(1, 4))
            + "[2026-01-01 12:00:04] Test,\tTimestamp: 1,\tLoss: 1,\tAccuracy: 1\n"
        )
        write(job, DRIVER, text)
        write(job, "metrics.jsonl", record(9))
        write(job, "log/gpu-host-1.0.1.gpu-host-1/stdout", "words that would spoil the table\n")

        quoted = get(alice_client, job, "log", Accept="application/json")
        assert quoted["Content-Type"] == "application/json"
        assert json.loads(body_of(quoted)) == text
        plain = get(alice_client, job, "log", Accept="text/plain")
        assert plain["Content-Type"] == "text/plain; charset=utf-8"
        assert body_of(plain).decode() == text
        assert as_a_notebook_reads_it(text[: text.index("[2026-01-01 12:00:04]")]) == [
            (f"176726880{step}000", str(step), str(step), "0.5", "0.7") for step in range(1, 4)
        ]

    def test_without_a_drivers_file_it_is_made_of_the_steps(self, alice_client: Client, job: Job) -> None:
        write(job, "metrics.jsonl", record(1) + record(2, loss=None) + record(3, accuracy=None))
        text = json.loads(body_of(get(alice_client, job, "log")))
        assert all(GRAMMAR.fullmatch(line) for line in text.splitlines(keepends=True))
        assert as_a_notebook_reads_it(text) == [
            ("1767268801500", "1", "1", "0.50000", "0.70000"),
            ("1767268802500", "2", "2", "nan", "0.70000"),
            ("1767268803500", "3", "3", "0.50000", "0.00000"),
        ]

    def test_pandas_reads_it_as_the_notebooks_do(self, alice_client: Client, job: Job) -> None:
        write(job, "metrics.jsonl", "".join(record(step, loss=step / 4) for step in range(1, 4)))
        text = json.loads(body_of(get(alice_client, job, "log", Accept="application/json")))
        names = ["timestamp", "global_steps", "iteration", "loss", "accuracy"]
        table = pandas.read_csv(io.StringIO(text.replace(":", ",")), usecols=[4, 6, 8, 10, 12], names=names)
        assert table.to_numpy().tolist() == [
            [1767268800500 + 1000 * step, step, step, step / 4, 0.7] for step in range(1, 4)
        ]

    def test_a_command_lines_own_words_in_the_address_change_nothing(self, alice_client: Client, job: Job) -> None:
        write(job, "metrics.jsonl", record(1))
        asked = get(alice_client, job, "log?args=--exec-trainlogs%20wmla-1", Accept="text/plain")
        assert GRAMMAR.fullmatch(body_of(asked).decode())

    def test_a_driver_that_has_written_nothing_yet_does_not_hide_the_steps(
        self, alice_client: Client, job: Job
    ) -> None:
        write(job, DRIVER, "")
        write(job, "metrics.jsonl", record(1))
        assert len(json.loads(body_of(get(alice_client, job, "log"))).splitlines()) == 1

    def test_before_the_first_step_it_is_empty_and_not_an_error(self, alice_client: Client, on_prem: Job) -> None:
        assert body_of(get(alice_client, on_prem, "log")) == b'""'
        assert body_of(get(alice_client, on_prem, "log", Accept="text/plain")) == b""

    def test_steps_made_anew_after_a_checkpoint_come_once(self, job: Job) -> None:
        write(job, "metrics.jsonl", "".join(record(step) for step in range(1, 6)))
        folder = job_folder(job).start_attempt(2)
        (folder / "metrics.jsonl").write_text("".join(record(step, loss=0.1) for step in range(4, 7)))
        set_job(job, attempt=2)
        job.refresh_from_db()

        rows = as_a_notebook_reads_it(b"".join(train_log(job)).decode())
        assert [row[1] for row in rows] == ["1", "2", "3", "4", "5", "6"]
        assert [row[3] for row in rows] == ["0.50000"] * 3 + ["0.10000"] * 3

    def test_lines_that_are_no_records_are_left_out(self, job: Job) -> None:
        bad = [
            '{"step": "x", "at": 1}',
            "[]",
            "null",
            "{",
            '{"step": 1}',
            '{"step": 1, "at": 1e300}',
            '{"step":1,"at":1,"loss":[]}',
        ]
        write(job, "metrics.jsonl", "\n".join(bad) + "\n" + record(7) + record(8)[:-1])
        assert [row[1] for row in as_a_notebook_reads_it(b"".join(train_log(job)).decode())] == ["7"]

    def test_a_link_that_leads_elsewhere_is_not_followed(self, job: Job, home: Path) -> None:
        secret = home / "secret"
        secret.write_text("secret\n")
        file = job_folder(job).attempt(1) / DRIVER
        file.parent.mkdir(parents=True)
        file.symlink_to(secret)
        assert b"".join(train_log(job)) == b""

    def test_it_is_read_in_pieces(self, job: Job) -> None:
        write(job, DRIVER, "x" * 1_000_000)
        assert max(map(len, train_log(job))) <= 256 * 1024


class TestPlainScript:
    """One that is not elastic: it has neither a driver nor steps."""

    @pytest.fixture
    def plain(self, submit: Submit, alice: User) -> Job:
        return started(job_behind(submit("--exec-start tensorflow --model-main main.py", sig_name=None), alice))

    def test_its_log_is_what_it_printed(self, alice_client: Client, plain: Job) -> None:
        assert json.loads(body_of(get(alice_client, plain, "log"))) == ""
        write_log(plain, ended_rank(plain), "Test loss: 0.02\nTest accuracy: 0.99\n")
        write(plain, "metrics.jsonl", record(1))
        printed = "Test loss: 0.02\nTest accuracy: 0.99\n"
        assert json.loads(body_of(get(alice_client, plain, "log"))) == printed
        assert body_of(get(alice_client, plain, "log?logType=outlog", Accept="text/plain")).decode() == printed

    def test_after_a_restart_it_is_what_both_attempts_printed(self, alice_client: Client, plain: Job) -> None:
        write_log(plain, ended_rank(plain), "epoch 1\nepo")
        job_folder(plain).start_attempt(2)
        set_job(plain, attempt=2)
        write_log(plain, ended_rank(plain, attempt=2), "epoch 2\n")
        assert json.loads(body_of(get(alice_client, plain, "log"))) == "epoch 1\nepo\nepoch 2\n"


class TestRankLog:
    @pytest.fixture
    def ranks(self, job: Job) -> None:
        for number in range(2):
            member_id = f"gpu-host-1.{number}.1"
            Rank.objects.create(
                job=job,
                attempt=1,
                member_id=member_id,
                host="gpu-host-1",
                slot=number,
                pid=1,
                started_at=1.0,
                rank=number,
            )
            write(job, f"log/{member_id}.gpu-host-1/stdout", f'out {number} \u00e9 "quoted"\n')
            write(job, f"log/{member_id}.gpu-host-1/stderr", f"err {number}\n")

    @pytest.mark.parametrize(
        ("kind", "text"),
        [("outlog", 'out 0 é "quoted"\n'), ("errlog", "err 0\n"), ("outerrlog", 'out 0 é "quoted"\nerr 0\n')],
    )
    def test_it_is_what_rank_0_printed(self, alice_client: Client, job: Job, ranks: None, kind: str, text: str) -> None:
        assert json.loads(body_of(get(alice_client, job, f"log?logType={kind}"))) == text
        assert body_of(get(alice_client, job, f"log?logType={kind}", Accept="text/plain")).decode() == text

    def test_of_an_elastic_one_it_ends_with_its_steps(self, alice_client: Client, job: Job, ranks: None) -> None:
        write(job, DRIVER, LINE.format(1))
        for kind, end in (("outlog", ""), ("outerrlog", "err 0\n")):
            text = json.loads(body_of(get(alice_client, job, f"log?logType={kind}")))
            assert text == 'out 0 é "quoted"\n' + LINE.format(1) + end
        assert json.loads(body_of(get(alice_client, job, "log?logType=errlog"))) == "err 0\n"

    def test_without_a_rank_it_is_empty(self, alice_client: Client, on_prem: Job) -> None:
        assert body_of(get(alice_client, on_prem, "log?logType=outlog", Accept="text/plain")) == b""

    def test_another_type_is_refused(self, alice_client: Client, on_prem: Job) -> None:
        answer = get(alice_client, on_prem, "log?logType=core")
        assert (answer.status_code, answer.content[:11]) == (400, b"Error 400: ")


@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
def test_a_json_string_is_the_same_however_its_bytes_are_cut(size: int) -> None:
    text = 'é "q" \\ \n \t \u20ac 😀 ' * 3
    data = text.encode()
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    assert json.loads(b"".join(as_json_string(pieces))) == text
    assert json.loads(b"".join(as_json_string([b"\xff\xc3"]))) == "\ufffd\ufffd"


def test_a_line_says_accuracy_in_parts_of_1() -> None:
    assert train_line({"step": 3, "at": 0, "loss": 1, "accuracy": 97.5}).endswith("Loss: 1.00000,\tAccuracy: 0.97500\n")


class TestResult:
    @pytest.mark.parametrize("accept", ["application/octet-stream", "application/json", "text/plain"])
    def test_the_header_has_the_size_that_notebooks_split_off(
        self, alice_client: Client, job: Job, accept: str
    ) -> None:
        write(job, "model/train/model_epoch_final.pth", os.urandom(300_000))
        write(job, DRIVER, "lines\n")
        answer = get(alice_client, job, "result?args=--exec-trainresult", Accept=accept)
        header = answer["Content-Disposition"]

        name = alice_client.get(f"{DLI}/execs/wmla-{job.pk}").json()["id"]
        assert header.startswith(f"attachment;filename={name}.zip;size=")
        content = body_of(answer)
        assert int(header.split("size=")[1]) == len(content)
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            assert archive.testzip() is None
            assert {"model/train/model_epoch_final.pth", DRIVER, "_submitted_code/pytorch_edt/main.py"} <= set(
                archive.namelist()
            )

    def test_it_holds_the_tree_that_scripts_unpack(self, alice_client: Client, job: Job) -> None:
        weights = [f"model_epoch_{epoch}{kind}.pth" for epoch in ("2", "final") for kind in ("", "_optimizer_state")]
        tree = {
            *("checkpoint/step-7/state.safetensors", "val_dict_list.json"),
            *("log/gpu-host-1.0.1.gpu-host-1/stdout", "log/gpu-host-1.0.1.gpu-host-1/stderr"),
            *(DRIVER, str(Path(DRIVER).with_name("evaluation-metrics.txt"))),
            *(f"model/train/{name}" for name in weights),
        }
        for path in tree:
            write(job, path, "x")
        with zipfile.ZipFile(io.BytesIO(body_of(get(alice_client, job, "result")))) as archive:
            assert set(archive.namelist()) == {*tree, "_submitted_code/pytorch_edt/main.py"}

    def test_in_cloud_pak_its_name_begins_as_scripts_expect(self, alice_client: Client, cloud_pak: Job) -> None:
        answer = get(alice_client, started(cloud_pak), "result")
        [filename] = [item for item in answer["Content-Disposition"].split(";") if item.startswith("filename=")]
        assert filename == f"filename=dlpd-model-wmla-{cloud_pak.pk}.zip"
        body_of(answer)

    def test_a_users_name_cannot_break_the_header(self, alice_client: Client, job: Job, alice: User) -> None:
        before = job_folder(job).path.parents[1]
        User.objects.filter(pk=alice.pk).update(username='a";\u00e9')
        before.rename(job_folder(Job.objects.get(pk=job.pk)).path.parents[1])
        answer = get(alice_client, job, "result")
        answer.close()
        header = answer["Content-Disposition"]
        assert header.count(";") == 2
        assert header.isascii()

    def test_before_it_has_started_there_is_none(self, alice_client: Client, on_prem: Job) -> None:
        answer = get(alice_client, on_prem, "result")
        assert (answer.status_code, answer.content[:11]) == (404, b"Error 404: ")

    def test_who_leaves_before_the_first_byte_leaves_nothing_open(self, alice_client: Client, job: Job) -> None:
        write(job, "metrics.jsonl", record(1))
        answer = get(alice_client, job, "result")
        assert opened_below(job)
        answer.close()
        assert opened_below(job) == []


def opened_below(job: Job) -> list[str]:
    """Files of the job's folder that this process has open."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return [path for path in found if path.startswith(str(job_folder(job).path))]
