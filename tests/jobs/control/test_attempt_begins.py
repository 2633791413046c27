"""Tests of the sentence that tells whether the new attempt of a plain script continued, by what the script prints."""

from pathlib import Path

import pytest
from tidepool.protocol import to_json

from jobs.control.observed_curves import set_log_pattern
from jobs.models import Job
from jobs.states import Reason
from models_registry.models import RegisteredModelVersion
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit
from workers.executor.curves.growing_files import LibrarySource, LogSource
from workers.executor.curves.reader import Watch


class Script:
    """Attempts of one plain script, whose output an executor reads."""

    def __init__(self, cluster: Cluster, job: Job, folder: Path) -> None:
        self.job = job
        self._cluster, self._folder = cluster, folder
        self._watches: dict[int, Watch] = {}

    def prints(self, *lines: str, stream: str = "stdout") -> None:
        """Let the current attempt print these lines, and its host report what it reads of them."""
        self._write(f"log/{stream}", lines)

    def notes(self, *lines: str) -> None:
        """Let the library of the current attempt note these moments."""
        self._write("library.jsonl", lines)

    def _write(self, name: str, lines: tuple[str, ...]) -> None:
        attempt = Job.objects.get(pk=self.job.pk).run.attempt
        file = self._folder / f"attempt-{attempt}" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a") as output:
            output.writelines(f"{line}\n" for line in lines)
        watch = self._watches.setdefault(attempt, Watch(self._folder / f"attempt-{attempt}", self._folder, []))
        source = LibrarySource(name) if name == "library.jsonl" else LogSource(file.name)
        watch.sources.setdefault(f"attempt:{name}", source)
        watch.set_pattern(self.job.log_pattern, self.job.log_pattern_revision)
        watch.sources.setdefault(f"attempt:{name}", source)
        journal = self._cluster.hosts[self.job.run.lead_host].journals[f"{self.job.pk}.{attempt}.observed"]
        journal += [("observed", to_json(step)) for step in watch.look(1.0, search=False, is_last=False)]
        self._cluster.report()

    def begins_again(self) -> None:
        """Lose the attempt's rank, and start the next attempt."""
        self._cluster.train(self.job, plain=True)
        [rank] = self._cluster.ranks(self.job)
        self._cluster.hosts[self.job.run.lead_host].end(rank.slot, signal=9)
        self._cluster.report()
        self._cluster.turn(3)

    @property
    def told(self) -> list[str]:
        return [event.text for event in self.job.events.filter(reason=Reason.RESTORED)]


@pytest.fixture
def script(cluster: Cluster, submit: Submit, code: RegisteredModelVersion, tmp_path: Path) -> Script:
    """A plain script that runs."""
    RegisteredModelVersion.objects.filter(pk=code.pk).update(engine="single")
    job = submit(max_slots=1)
    cluster.turn()
    return Script(cluster, Job.objects.get(pk=job.pk), tmp_path)


def epochs(first: int, last: int, form: str = "Epoch {0}/60 loss: 0.5") -> list[str]:
    return [form.format(number) for number in range(first, last + 1)]


def bar(done: int) -> str:
    return f"{done}%|###| {done}/100 [00:01<00:01, 20.00it/s]"


def test_a_script_that_goes_on_from_a_file_in_its_working_folder_has_continued(script: Script) -> None:
    script.prints("begins at epoch 1", *epochs(1, 45))
    script.begins_again()
    assert script.told == [], "nothing is claimed before its first step"
    script.prints("begins at epoch 46")
    script.prints(*epochs(46, 46))
    script.prints(*epochs(47, 50))
    assert script.told == ["It continued at epoch 46, where the attempt before had reached epoch 45."]


def test_a_loop_of_accelerate_that_loads_its_newest_folder_has_continued(script: Script) -> None:
    form = "epoch {0}: loss 0.1234"
    script.prints("world 1 device cpu type NO", "begins at epoch 0", *epochs(0, 20, form))
    script.begins_again()
    script.prints("world 1 device cpu type NO", "begins at epoch 20", *epochs(20, 22, form))
    script.begins_again()
    script.prints("begins at epoch 0", *epochs(0, 1, form))
    assert script.told == [
        "It continued at epoch 20, where the attempt before had reached epoch 20.",
        "It began at epoch 0 again, and the attempt before had reached epoch 22. A script continues if it loads at its "
        "start what it has saved in its working folder or in CHECKPOINT_DIR.",
    ]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (["step 10 loss 0.5", "step 20 loss 0.4"], ["step 10 loss 0.5"], "It began at step 10 again, and the attempt"),
        (["step 10 loss 0.5", "step 90 loss 0.4"], ["step 60 loss 0.5"], "It continued at step 60, where the attempt"),
        # A counter within each epoch restarts with it.
        (
            [f"Epoch {epoch} [{step}/100] loss 0.5" for epoch in (1, 2, 3) for step in (50, 100)],
            ["Epoch 3 [50/100] loss 0.5"],
            "It continued at epoch 3, where the attempt before had reached epoch 3.",
        ),
        # Bars show 0 before they go on, and are read about once a second.
        ([bar(0), bar(1), bar(20)], [bar(0), bar(1), bar(30)], "It began at step 1 again, and the attempt"),
        ([bar(0), bar(1), bar(20)], [bar(0), bar(18), bar(30)], "It continued at step 18, where the attempt"),
    ],
)
def test_the_first_step_tells(script: Script, before: list[str], after: list[str], told: str) -> None:
    script.prints(*before)
    script.begins_again()
    script.prints(*after)
    assert [sentence.startswith(told) for sentence in script.told] == [True], script.told


def test_lines_without_a_step_tell_nothing(script: Script) -> None:
    script.prints("loss: 0.5", "loss: 0.4")
    script.begins_again()
    script.prints("loss: 0.3")
    assert script.told == []


def test_streams_are_compared_with_themselves(script: Script) -> None:
    script.prints(bar(0), bar(50), stream="stderr")
    script.prints("epoch 1 loss 0.5")
    script.begins_again()
    script.prints("epoch 1 loss 0.5")
    script.prints(bar(0), bar(60), stream="stderr")
    assert [sentence.partition(",")[0] for sentence in script.told] == ["It began at epoch 1 again"]


def test_an_attempt_that_printed_nothing_changes_nothing(script: Script) -> None:
    script.prints(*epochs(1, 5))
    script.begins_again()
    script.begins_again()
    script.prints(*epochs(5, 6))
    assert script.told == ["It continued at epoch 5, where the attempt before had reached epoch 5."]


def test_a_library_tells_better_than_its_bars(script: Script) -> None:
    moment = '{{"step": {0}, "epoch": 0, "progress": 0.5, "at": 5.0, "metrics": {{"loss": 0.5}}}}'
    script.notes(moment.format(5), moment.format(40))
    script.begins_again()
    script.prints("step 1 loss 0.3")
    script.notes(moment.format(31))
    assert script.told == ["It continued at step 31, where the attempt before had reached step 40."]


def test_steps_by_another_pattern_are_not_compared(script: Script) -> None:
    script.prints(*epochs(1, 45))
    script.begins_again()
    script.job = set_log_pattern(script.job.pk, r"Epoch (?P<step>\d+)/60 loss: (?P<loss>\S+)")
    script.prints(*epochs(46, 47))
    script.begins_again()
    script.prints(*epochs(46, 47))
    assert script.told == []
