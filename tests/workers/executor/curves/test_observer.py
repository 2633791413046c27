"""An executor reads what a training's folders hold, once, whatever happens to it meanwhile."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tidepool.journal import Journal
from tidepool.protocol import DesiredJob, GenerationPlanned, PlanMember, RankExited

from tests.runtime.process_tree import launch_spec
from tests.workers.executor.curves import files
from tests.workers.executor.embedded import desired_job
from workers.executor.curves.observer import CurveObserver
from workers.executor.journals import Journals

KEY, NAME = (3, 1), "3.1.observed"


class Training:
    """A script's folders, and the executor that looks at them."""

    def __init__(self, top: Path, member_id: str = "host-a.0.1") -> None:
        """member_id: of the first rank, as the training's own journal says."""
        self.top = top
        self.folder, self.code = top / "3" / "attempt-1", top / "3" / "_submitted_code" / "script"
        self.log = self.folder / "log" / "host-a.0.1.host-a" / "stdout"
        for folder in (self.log.parent, self.code, self.folder / "journal"):
            folder.mkdir(parents=True)
        (self.code / "given.csv").write_text("step,loss\n1,5\n")
        (top / "3" / "code.json").write_text(json.dumps({"given.csv": [15, 0]}))
        journal = Journal(self.folder / "plans.jsonl")
        journal.append(GenerationPlanned(1, [PlanMember(member_id, "host-a", 0, holder=True)], 1, "start", at=1.0))
        journal.close()
        places = {"folder": str(self.folder), "code_folder": str(self.code)}
        launch = msgspec.structs.replace(launch_spec(top, "", engine="single"), **places)
        self.desired: DesiredJob = desired_job(launch, [0], lead=True)
        self.start()

    def start(self) -> None:
        """A new executor, maybe after one that was killed."""
        self.curves = CurveObserver(self.top / "run" / "curves", lambda: 9.0)
        self.journals = Journals("host-a", self.top / "run" / "journals.json", curves=self.curves)
        (self.top / "run").mkdir(exist_ok=True)
        self.journals.recall()
        self.journals.follow(self.desired)

    def say(self, text: str) -> None:
        with self.log.open("a") as file:
            file.write(text)

    def look(self) -> list[dict[str, Any]]:
        self.curves.look()
        self.journals.has_unsent()
        entries = self.journals.take(500)
        self.journals.acknowledge({entry.journal: entry.number for entry in entries})
        return [entry.data for entry in entries if entry.journal == NAME]


@pytest.fixture
def training(tmp_path: Path) -> Training:
    return Training(tmp_path)


def curves_of(steps: list[dict[str, Any]]) -> list[tuple[str, int, dict[str, Any]]]:
    return [(f"{step['kind']}:{step['where']}", step["step"], step.get("metrics", {})) for step in steps]


def test_logs_and_files_of_a_training_are_read(training: Training) -> None:
    training.say("epoch 1 loss 0.5\n")
    (training.code / "runs").mkdir()
    (training.code / "runs" / "events.out.tfevents.1").write_bytes(files.event(7, {"lr": files.scalar(0.5)}))
    (training.folder / "metrics.csv").write_text("step,acc,val_accuracy\n3,1,0.5\n")
    (training.folder / "val_dict_list.json").write_text('[{"steps": 45, "f1": 0.5}]')
    assert curves_of(training.look()) == [
        ("log:stdout", 1, {"loss": 0.5}),
        ("csv:metrics.csv", 3, {"acc": 1.0, "val_accuracy": 50.0}),
        ("json:val_dict_list.json", 45, {"f1": 0.5}),
        ("tensorboard:runs/events.out.tfevents.1", 7, {"lr": 0.5}),
    ]
    assert training.look() == []


def test_a_file_takes_a_curve_over_from_the_log(training: Training) -> None:
    training.say("epoch 1 loss 0.5\n")
    training.look()
    (training.folder / "a.csv").write_text("step,loss\n1,0.51\n")
    (training.folder / "b.csv").write_text("step,loss\n1,0.52\n")
    for _ in range(4):  # files that are new are searched for at every fourth look
        found = training.look()
    assert curves_of(found) == [("csv:a.csv", 1, {"loss": 0.51}), ("csv:b.csv", 1, {"b/loss": 0.52})]
    training.say("epoch 2 loss 0.4\n")
    assert curves_of(training.look()) == [("log:stdout", 2, {})]


def test_a_library_takes_curves_and_counters_over_from_the_log_and_leaves_curves_to_files(training: Training) -> None:
    training.look()
    training.say("epoch 1 loss 0.5\n")
    moment = {"step": 20, "epoch": 2, "progress": 0.25, "at": 5.0, "metrics": {"loss": 0.25, "lr": 0.125}}
    (training.folder / "journal" / "library.jsonl").write_text(f"{json.dumps(moment)}\nrubbish\n")
    (training.folder / "a.csv").write_text("step,lr\n1,0.5\n")
    assert curves_of(training.look()) == [
        ("log:stdout", 1, {"loss": 0.5}),
        ("library:journal/library.jsonl", 20, {"loss": 0.25, "lr": 0.125}),
    ]
    for _ in range(3):
        found = training.look()
    assert curves_of(found) == [("csv:a.csv", 1, {"lr": 0.5})]
    training.say("epoch 9/10 loss 0.4\n\r 95%|#  | 95/100 [00:01<00:01]\nepoch 10/10 acc 0.5\n")
    with (training.folder / "journal" / "library.jsonl").open("a") as file:
        file.write(f"{json.dumps({**moment, 'step': 21, 'progress': 0.5})}\n")
    [log, again] = training.look()
    assert (log["metrics"], log["progress"]) == ({"acc": 0.5}, 0.25), "bars and lines without a curve count nothing"
    assert (again["step"], again["epoch"], again["progress"], again["metrics"]) == (21, 2, 0.5, {"loss": 0.25})


def test_a_success_is_reported_after_the_last_points(training: Training) -> None:
    training.say("epoch 1 loss 0.5\n")
    training.look()
    training.say("epoch 2 loss 0.4\n")
    with closing(Journal(training.folder / "journal" / "shim.host-a.jsonl")) as journal:
        journal.append(RankExited("host-a.0.1", 0, 7, code=0, at=1.0))

    def sent() -> list[str]:
        entries = training.journals.take(500)
        training.journals.acknowledge({entry.journal: entry.number for entry in entries})
        return [entry.kind for entry in entries if entry.kind in ("observed", "rank_exited")]

    assert sent() == []
    training.curves.look()
    assert sent() == ["observed"]
    assert sent() == ["rank_exited"]


@pytest.mark.parametrize("how", [{"code": 1}, {"signal": 9}, {"code": 0, "stopped": True}])
def test_other_ends_wait_for_no_curves(training: Training, how: dict[str, Any]) -> None:
    with closing(Journal(training.folder / "journal" / "shim.host-a.jsonl")) as journal:
        journal.append(RankExited("host-a.0.1", 0, 7, at=1.0, **how))
    training.journals.has_unsent()
    assert "rank_exited" in [entry.kind for entry in training.journals.take(500)]


def test_an_executor_that_was_killed_goes_on(training: Training) -> None:
    training.say("epoch 1 loss 0.5\n")
    assert len(training.look()) == 1
    training.journals.acknowledge({NAME: 1})
    training.start()
    training.say("epoch 2 loss 0.4\n")
    assert curves_of(training.look()) == [("log:stdout", 2, {"loss": 0.4})]


def test_half_a_line_that_a_killed_executor_left_says_nothing(training: Training) -> None:
    training.say("epoch 1 loss 0.5\n")
    training.curves.look()
    with training.curves.path(KEY).open("a") as file:
        file.write('{"step": 4, "at\n')
    assert len(training.look()) == 2
    training.say("epoch 2 loss 0.4\n")
    assert curves_of(training.look()) == [("log:stdout", 2, {"loss": 0.4})]


def test_what_a_short_script_leaves_is_read_before_it_is_forgotten(training: Training) -> None:
    training.journals.release(KEY)
    training.journals.acknowledge({NAME: 0})
    training.say("epoch 1 loss 0.5\nepoch 2 loss 0.4")
    assert [step for _, step, _ in curves_of(training.look())] == [1, 2]
    assert not training.curves.watches(KEY)
    training.journals.acknowledge({NAME: 2})
    assert not training.curves.path(KEY).exists()
    assert list((training.top / "run" / "curves").iterdir()) == []


def test_another_pattern_reads_the_log_again(training: Training) -> None:
    training.say("epoch 1 loss 0.5 R 7\n")
    training.look()
    changed = {"log_pattern": r"R (?P<reward>\d+)", "log_pattern_revision": 1}
    training.desired = desired_job(training.desired.launch, [0], lead=True, **changed)
    training.journals.follow(training.desired)
    [step] = training.look()
    assert (step["metrics"], step["revision"]) == ({"reward": 7.0}, 1)


def test_links_are_not_followed(training: Training, tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("step,loss\n1,2\n")
    (training.code / "metrics.csv").symlink_to(tmp_path / "secret.csv")
    (training.code / "runs").symlink_to(tmp_path, target_is_directory=True)
    assert training.look() == []


def test_no_name_of_a_rank_leads_to_the_log_of_another_training(tmp_path: Path) -> None:
    """A training can write into its own journal what its first rank is called."""
    theirs = tmp_path / "theirs" / "log" / "host-a.0.1.host-a"
    theirs.mkdir(parents=True)
    (theirs / "stdout").write_text("epoch 1 loss 0.5\n")
    forged = Training(tmp_path, "../../../theirs/log/host-a.0.1")
    assert (forged.folder / "log" / "../../../theirs/log/host-a.0.1.host-a" / "stdout").exists()
    assert forged.look() == []


def test_a_script_with_a_session_speaks_for_itself(training: Training) -> None:
    training.say("epoch 1 loss 0.5\n")
    (training.folder / "metrics.jsonl").write_text("{}\n")
    assert training.look() == []


def observed(training: Training) -> list[dict[str, Any]]:
    """Let it read all of the training, whose processes have ended, and return what it has kept."""
    training.curves.release(KEY)
    while training.curves.watches(KEY):
        training.curves.look()
    return [json.loads(line) for line in training.curves.path(KEY).read_text().splitlines()]


@pytest.mark.parametrize(
    ("name", "count"), [("metrics.csv", 32_000), ("events.out.tfevents.1", 13_000), ("stdout", 13_000)]
)
def test_a_fast_writer_is_read_to_its_end(
    training: Training, monkeypatch: pytest.MonkeyPatch, name: str, count: int
) -> None:
    monkeypatch.setattr("workers.executor.curves.observer._TURN_SECONDS", 0.01)
    if name == "stdout":
        training.say("".join(f"step {step} loss {step}\n" for step in range(1, count + 1)))
    elif name == "metrics.csv":
        (training.code / name).write_text("step,loss\n" + "".join(f"{step},{step}\n" for step in range(1, count + 1)))
    else:
        events = (files.event(step, {"loss": files.scalar(step)}) for step in range(1, count + 1))
        (training.code / name).write_bytes(b"".join(events))
    steps = observed(training)
    assert len(steps) == count
    assert (steps[-1]["step"], steps[-1]["metrics"]) == (count, {"loss": count})
    assert not any(step.get("has_gaps") for step in steps)


def test_a_table_of_very_many_columns_is_cut_with_a_word(training: Training) -> None:
    names = [f"layer{number}.norm" for number in range(5000)]
    rows = [",".join(map(str, [step, *range(5000)])) for step in (1, 2)]
    (training.code / "wide.csv").write_text("\n".join([",".join(["step", *names]), *rows, ""]))
    steps = observed(training)
    assert [step["step"] for step in steps] == [1, 2]
    assert [len(step["metrics"]) for step in steps] == [200, 200]
    assert steps[-1]["left_out"] == 4800


def test_a_full_journal_goes_on_with_the_newest_points(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.executor.curves.observer._MAX_JOURNAL_BYTES", 1000)
    (training.code / "metrics.csv").write_text("step,loss\n" + "".join(f"{step},{step}\n" for step in range(1, 2001)))
    steps = observed(training)
    assert 500 <= len(steps) < 600
    assert (steps[-1]["step"], steps[-1]["has_gaps"]) == (2000, True)


def test_a_log_that_is_passed_over_says_so(training: Training) -> None:
    training.curves.look()
    for source in training.curves._watches[KEY].sources.values():
        source.most_behind = 100_000
    training.say("".join(f"step {step} loss 1\n" for step in range(1, 20_000)))
    training.curves.look()
    steps = observed(training)
    assert (steps[-1]["step"], steps[-1]["has_gaps"]) == (19_999, True)
