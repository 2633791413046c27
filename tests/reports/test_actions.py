"""Actions on reports: freezing figures, ordering blocks, and limits."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from core.errors import Conflict, NotAllowed, NotFound, UserError
from core.models import AuditEntry
from jobs.models import Job, MetricPoint, Note
from reports import actions
from reports.figures import figure_choices, freeze, jobs_of
from reports.models import Report, ReportBlock
from reports.queries import reports
from tests.factories import InstanceGroupFactory, JobFactory, UserFactory, set_job
from tests.scene import Scene


@pytest.fixture
def report(scene: Scene) -> Report:
    return actions.make_report(scene.alice, "  Two   rates ")


def test_frozen_figures_outlast_their_training(scene: Scene, report: Report) -> None:
    jobs = [scene.first, scene.second]
    keys = [choice.key for choice in figure_choices(jobs)]
    assert {"chart:Loss", "chart:GPUs", "table:summary", f"note:{scene.first.pk}"} <= set(keys)
    made = actions.add_figures(scene.alice, report.pk, jobs, keys)
    before = list(ReportBlock.objects.filter(report=report).values())
    assert [block.place for block in made] == list(range(len(keys)))
    assert next(block.sources for block in made if block.kind == "chart") == [[job.pk, job.name] for job in jobs]

    Note.objects.all().delete()
    MetricPoint.objects.all().delete()
    set_job(scene.first, step=0, final_metrics={})
    Job.objects.filter(pk=scene.first.pk).update(name="another")

    assert list(ReportBlock.objects.filter(report=report).values()) == before


def test_the_numbers_are_those_of_the_training(scene: Scene, report: Report) -> None:
    loss, gpus, summary = actions.add_figures(
        scene.alice, report.pk, [scene.done], ["table:summary", "chart:GPUs", "chart:Loss"]
    )
    [line] = loss.data["lines"]
    newest = MetricPoint.objects.filter(job=scene.done, name="loss").order_by("-step")[0]
    assert line["points"][-1][0] == newest.step
    assert line["points"][-1][2] == pytest.approx(newest.value)
    assert [point[2] for point in gpus.data["lines"][0]["points"]] == [4, 0]
    rows = {name: values for name, values, _ in summary.data["rows"]}
    assert rows["GPU-hours of training"] == ["0.80"]  # 4 of them for 12 minutes
    assert (rows["Time taken"], rows["Maximum GPUs"]) == (["12 min 0 s"], ["4"])


def test_the_trials_of_a_study_bring_a_note_and_a_table_of_it(scene: Scene, report: Report) -> None:
    study, best = scene.study, scene.done
    Job.objects.filter(pk=best.pk).update(bundle=study.pk)
    other = JobFactory(owner=scene.alice, bundle=study.pk)
    study.trials.filter(number=0).update(job=other)
    study.trials.filter(number=1).update(values={"learning_rate": 0.009, "width": "/home/alice/w_32"})
    jobs = jobs_of(scene.alice, f"{best.pk},{other.pk}")
    offered = [choice.key for choice in figure_choices(jobs)]
    assert offered[:2] == [f"study:{study.pk}", f"trials:{study.pk}"]
    note, table = actions.add_figures(scene.alice, report.pk, jobs, offered[:2])
    assert (note.kind, note.title, len(note.sources)) == ("note", "Study Learning rates", 2)
    assert "Trial 1 is the best: its last test\\_accuracy, 96.4, is the highest" in note.text
    assert "5 trials: 2 complete, 1 pruned, 1 failed." in note.text
    assert "Importance: learning\\_rate 83 %, width 17 %." in note.text
    rows = {name: values for name, values, _ in table.data["rows"]}
    assert rows == {
        "Trial": ["1", "0"],
        "State": ["Complete", "Complete"],
        "test_accuracy": ["96.4", "91.5"],
        "learning_rate": ["0.009", "0.003"],
        "width": ["(left out: a path)", "64"],
    }
    assert not any("study" in choice.key for choice in figure_choices([scene.first]))


def test_figures_must_exist_and_belong_to_visible_trainings(scene: Scene) -> None:
    with pytest.raises(NotFound):
        jobs_of(User.objects.get(username="bob"), str(scene.first.pk))
    for text in ("", "x", ",".join(map(str, range(1, 10)))):
        with pytest.raises(UserError, match="1 to 8 trainings"):
            jobs_of(scene.alice, text)
    for keys, sentence in [([], "at least one"), (["chart:Nonsense"], "Figure 'chart:Nonsense' is not known")]:
        with pytest.raises(UserError, match=sentence):
            freeze([scene.first], keys)
    waiting = JobFactory(owner=scene.alice, started_at=scene.done.started_at)
    with pytest.raises(UserError, match="GPUs has no values yet"):
        freeze([waiting], ["chart:GPUs"])


def test_order_texts_and_removal(scene: Scene, report: Report) -> None:
    def order() -> list[str]:
        return list(report.blocks.order_by("place").values_list("text", flat=True))

    a, c = (actions.add_text(scene.alice, report.pk, text) for text in ("a", "c"))
    b = actions.add_text(scene.alice, report.pk, "b\r\nb ", below=a.pk)
    assert order() == ["a", "b\nb", "c"]
    actions.move_block(scene.alice, report.pk, c.pk, 0)
    actions.move_block(scene.alice, report.pk, a.pk, 99)
    assert order() == ["c", "b\nb", "a"]
    actions.remove_block(scene.alice, report.pk, b.pk)
    assert list(report.blocks.order_by("place").values_list("place", "text")) == [(0, "c"), (1, "a")]
    changed = actions.change_text(scene.alice, report.pk, a.pk, "A", after=0)
    assert (changed.text, changed.edits) == ("A", 1)
    with pytest.raises(Conflict, match="Somebody else has changed"):
        actions.change_text(scene.alice, report.pk, a.pk, "B", after=0)
    [table] = actions.add_figures(scene.alice, report.pk, [scene.done], ["table:results"])
    with pytest.raises(Conflict, match="Frozen blocks cannot be edited"):
        actions.change_text(scene.alice, report.pk, table.pk, "B")


@pytest.mark.parametrize(
    ("action", "sentence"),
    [
        (lambda user, pk: actions.add_text(user, pk, " "), "Write something"),
        (lambda user, pk: actions.add_text(user, pk, "x" * 20_001), "at most 20,000"),
        (lambda user, pk: actions.add_text(user, pk, "a\0"), "cannot be stored"),
        (lambda user, pk: actions.add_text(user, pk, "a", below=999), "no block 999"),
        (lambda user, pk: actions.rename_report(user, pk, " "), "a title"),
        (lambda user, pk: actions.rename_report(user, pk, "x" * 201), "at most 200"),
        (lambda user, pk: actions.rename_report(user, pk, "a\0"), "cannot be stored"),
        (lambda user, pk: actions.set_readers(user, pk, "world"), "Choose one of everybody"),
        (lambda user, pk: actions.delete_report(user, 999), "Report 999 not found"),
    ],
)
def test_invalid_changes_are_refused(
    scene: Scene, report: Report, action: Callable[[User, int], object], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        action(scene.alice, report.pk)


def test_limits(scene: Scene, report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "MAX_BLOCKS", 2)
    for text in "ab":
        actions.add_text(scene.alice, report.pk, text)
    with pytest.raises(Conflict, match="has 2 blocks of at most 2"):
        actions.add_text(scene.alice, report.pk, "c")
    monkeypatch.setattr(actions, "MAX_BLOCKS", 9)
    monkeypatch.setattr(actions, "MAX_BLOCK_BYTES", 100)
    with pytest.raises(Conflict, match="can have at most 100 B"):
        actions.add_figures(scene.alice, report.pk, [scene.done], ["chart:Loss"])
    monkeypatch.setattr(actions, "MAX_BLOCK_BYTES", 10**6)
    monkeypatch.setattr(actions, "_MAX_BYTES", 100)
    with pytest.raises(Conflict, match="exceed 4 MiB"):
        actions.add_figures(scene.alice, report.pk, [scene.done], ["chart:Loss"])
    monkeypatch.setattr(actions, "MAX_REPORTS", Report.objects.filter(owner=scene.alice).count())
    with pytest.raises(Conflict, match="delete one"):
        actions.make_report(scene.alice, "one more")


@pytest.mark.parametrize(
    "values",
    [
        {"place": 0},
        {"kind": "picture"},
        {"kind": "chart", "size_bytes": 0},
        {"kind": "chart", "size_bytes": 512 * 1024 + 1},
        {"kind": "text", "size_bytes": 1},
    ],
)
def test_the_database_refuses_invalid_blocks(scene: Scene, values: dict[str, object]) -> None:
    row = {"report": scene.report, "place": 50, "kind": "text", "added_at": scene.report.created_at, **values}
    with pytest.raises(IntegrityError), transaction.atomic():
        ReportBlock.objects.create(**row)


def test_permissions(scene: Scene, report: Report, carol: User) -> None:
    bob = User.objects.get(username="bob")
    group = InstanceGroupFactory()
    group.members.add(scene.alice)

    def sees() -> bool:
        return reports(bob).filter(pk=report.pk).exists()

    assert not sees()
    actions.set_readers(scene.alice, report.pk, "group")
    assert not sees()
    group.members.add(bob)
    assert sees()
    actions.set_readers(scene.alice, report.pk, "everybody")
    assert reports(UserFactory()).filter(pk=report.pk).exists()
    with pytest.raises(NotAllowed, match="belongs to another user"):
        actions.add_text(bob, report.pk, "mine")

    actions.rename_report(carol, report.pk, "Reviewed")
    with pytest.raises(NotAllowed, match="Only the owner"):
        actions.add_figures(carol, report.pk, [scene.first], ["table:results"])
    actions.delete_report(carol, report.pk)
    assert list(AuditEntry.objects.order_by("pk").values_list("actor", "verb", "after")) == [
        ("alice", "changed", {"readers": "group"}),
        ("alice", "changed", {"readers": "everybody"}),
        ("carol", "changed", {"title": "Reviewed"}),
        ("carol", "deleted", {}),
    ]
