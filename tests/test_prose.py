"""Check scripts/prose: which comments it counts, and which changes it reports."""

import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_architecture import ROOT

SCRIPT = runpy.run_path(str(ROOT / "scripts/prose"))


def hiding(source: str, path: str = "core/some.py") -> list[str]:
    return [comment.first_line for comment in SCRIPT["comments_of"](source, path) if comment.hides_the_noun]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("#: Of those that wait.\nx = 1\n", ["Of those that wait."]),
        ("#: Jobs that wait.\nx = 1\n", []),
        ("x = 1  # what is asked for\n", ["what is asked for"]),
        ("# (By the ways of requests.)\n", ["By the ways of requests.)"]),
        ("# ---- What pages use ----\n", ["What pages use"]),
        ("# `None` means no limit.\n", []),
        ("# None: no limit.\n", ["None: no limit."]),
        ("# Itself a process.\n", []),
        ("x = '# What is a text'\n", []),
        ("x = '''\n# What is a text\n'''\n", []),
        ("x = r'\\'# Who knows'\n", []),
        ("#!/usr/bin/env python3\n# What it does.\n", ["What it does."]),
        ("x = 1  # noqa: S101\n# type: ignore\n# pragma: no cover\n", []),
        ('def f():\n    """What is asked."""\n', ["What is asked."]),
        ('class A:\n    """Rows."""\n\n    def f(self):\n        """Where it lies."""\n', ["Where it lies."]),
    ],
)
def test_finds_first_words_that_hide_the_noun(source: str, found: list[str]) -> None:
    assert hiding(source) == found


def test_counts_consecutive_lines_as_one_comment() -> None:
    source = "# Jobs that wait,\n# of those the first.\nx = 1\n# Slots.\ny = 2  # GPUs\n# Hosts.\n"
    texts = [comment.text for comment in SCRIPT["comments_of"](source, "core/some.py")]
    assert texts == ["Jobs that wait,\nof those the first.", "Slots.", "GPUs", "Hosts."]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("// What is drawn.\n// It stays.\n", ["What is drawn."]),
        ("let a = 1; // of the page\n", ["of the page"]),
        ("/** Return the\n * page. */\n", []),
        ("/* Whoever\n * asks. */\n", ["Whoever"]),
        ('fetch("https://what.is/it")\n', []),
        ("let a = `// what`, b = /[/]/ // how\n", ["how"]),
    ],
)
def test_reads_comments_of_scripts(source: str, found: list[str]) -> None:
    assert hiding(source, "static/js/some.js") == found


def test_reads_comments_of_templates() -> None:
    source = "{# What it shows #}<p>{# a row #}{% comment %}\nIts name {% endcomment %}{# djlint:off #}"
    assert hiding(source, "templates/some.html") == ["What it shows", "Its name"]


def test_lists_sentences_that_begin_with_a_hiding_word() -> None:
    [comment] = SCRIPT["comments_of"]("# Jobs wait. What they ask. It is so. By\n# nobody.\n", "core/some.py")
    assert comment.hiding_sentences() == ["What they ask.", "By nobody."]


class Repository:
    """A repository of its own with a copy of the script."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "scripts").mkdir()
        shutil.copy(ROOT / "scripts/prose", folder / "scripts")
        self.git("init", "-q")

    def git(self, *arguments: str) -> None:
        author = ["-c", "user.name=Alice", "-c", "user.email=alice@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *author, *arguments], cwd=self.folder, check=True)

    def commit(self, **sources: str) -> None:
        for name, source in sources.items():
            (self.folder / f"{name}.py").write_text(source)
        self.git("add", ".")
        self.git("commit", "-qm", "Change")

    def problems(self) -> list[str]:
        """Run the check and return the changed files that it reports."""
        command = [sys.executable, "scripts/prose"]
        run = subprocess.run(command, cwd=self.folder, check=False, capture_output=True, text=True)
        self.output = run.stdout
        return [line.split(": ")[1] for line in run.stderr.splitlines() if ": " in line and " more than in " in line]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def test_reports_a_changed_file_that_became_worse(repository: Repository) -> None:
    repository.commit(jobs="# Jobs.\nx = 1\n", hosts="# Of hosts.\n")
    assert repository.problems() == []
    assert "no parent" in repository.output
    repository.commit(jobs="# Jobs.\nx = 1\n# What waits.\n")
    assert repository.problems() == ["jobs.py"]
    repository.commit(jobs="# Jobs.\nx = 1\n")
    assert repository.problems() == []


def test_compares_with_head_while_the_tree_is_dirty(repository: Repository) -> None:
    repository.commit(jobs="# Jobs.\n")
    repository.commit(jobs="# Jobs.\nx = 1\n# What waits.\n")
    (repository.folder / "jobs.py").write_text("# Jobs.\nx = 1\n# What still waits.\n")
    assert repository.problems() == []
    (repository.folder / "jobs.py").write_text("# Of jobs.\nx = 1\n# What still waits.\n")
    assert repository.problems() == ["jobs.py"]


def test_lets_comments_move_between_files(repository: Repository) -> None:
    repository.commit(jobs="# Jobs.\nx = 1\n# What waits.\n", hosts="# Hosts.\n")
    repository.commit(jobs="# Jobs.\n", waiting="# What waits.\n", hosts="# Hosts.\n")
    assert repository.problems() == []
    repository.git("mv", "waiting.py", "queue.py")
    assert repository.problems() == []
