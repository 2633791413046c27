"""Tests of the source that the client reads by git: commit, branch, address and difference."""

import os
import subprocess
from pathlib import Path

import pytest
from tidepool.client import source
from tidepool.client.pack import package
from tidepool.client.source import Source, code_source
from tidepool.source_privacy import command_text, is_secret_file, without_credentials

from tests.client.repository import commit_all, git


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository with one commit of `train.py`."""
    top = tmp_path / "project"
    top.mkdir()
    (top / "train.py").write_text("epochs = 1\n")
    commit_all(top)
    return top


def _source(folder: Path) -> Source:
    return code_source(folder, package(folder).files)


def test_a_clean_folder_has_its_commit_branch_and_address(folder: Path) -> None:
    git(folder, "remote", "add", "origin", "https://alice:ghp_0123456789abcdefghij@git.example.org/a/b.git?token=1")
    assert _source(folder) == Source(
        repository="https://git.example.org/a/b.git", commit=git(folder, "rev-parse", "HEAD"), branch="main"
    )


def test_the_difference_restores_the_folder(folder: Path, tmp_path: Path) -> None:
    (folder / "old.py").write_text("old\n")
    (folder / "sub").mkdir()
    (folder / "sub/deep.py").write_text("a\nb\n")
    commit_all(folder)
    git(folder, "clone", "-q", str(folder), str(tmp_path / "again"))
    (folder / "train.py").write_text("epochs = 2")
    (folder / "old.py").unlink()
    (folder / "sub/deep.py").write_text("a\nc\n")
    (folder / "sub/new file.py").write_text("new\n")
    found = _source(folder)
    assert (found.is_dirty, found.left_out, found.problem) == (True, [], "")
    again = tmp_path / "again"
    subprocess.run(["git", "-C", str(again), "apply"], input=found.diff.encode(), check=True)
    names = {file.relative_to(again).as_posix() for file in again.rglob("*.py")}
    assert names == {"train.py", "sub/deep.py", "sub/new file.py"}
    assert (again / "train.py").read_text() == "epochs = 2"


def test_a_folder_of_a_repository_tells_only_its_own_differences(folder: Path) -> None:
    (folder / "part").mkdir()
    (folder / "part/train.py").write_text("a\n")
    commit_all(folder)
    (folder / "train.py").write_text("changed elsewhere\n")
    assert not _source(folder / "part").is_dirty
    (folder / "part/train.py").write_text("b\n")
    found = _source(folder / "part")
    assert "a/train.py" in found.diff
    assert "elsewhere" not in found.diff


def test_new_files_that_are_not_sent_are_not_in_the_difference(folder: Path) -> None:
    (folder / "diary.txt").write_text("dear diary\n")
    assert not code_source(folder, [Path("train.py")]).is_dirty


@pytest.mark.parametrize("name", [".env", "server.pem", "id_rsa", "sub/.env.local", "keys/credentials.json", ".netrc"])
def test_secret_files_are_named_and_left_out(folder: Path, name: str) -> None:
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("PASSWORD=hunter2\n")
    found = code_source(folder, [Path(name)])
    assert found.left_out == [{"path": name, "why": "its name says that it is secret"}]
    assert found.is_dirty
    assert "hunter2" not in found.diff
    commit_all(folder)
    file.write_text("PASSWORD=hunter3\n")
    found = _source(folder)
    assert [each["path"] for each in found.left_out] == [name]
    assert "hunter3" not in found.diff


def test_tokens_and_private_keys_in_code_are_not_sent(folder: Path) -> None:
    (folder / "train.py").write_text('token = "hf_abcdefghijklmnopqrstuvwx"\n')
    (folder / "key.txt").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n")
    found = _source(folder)
    assert "hf_abc" not in found.diff
    assert '+token = "***"' in found.diff
    assert found.left_out == [{"path": "key.txt", "why": "it contains a private key"}]


def test_enormous_and_binary_differences_are_named(folder: Path) -> None:
    (folder / "large.txt").write_text("line\n" * 400_000)
    (folder / "weights.bin").write_bytes(bytes(range(256)) * 10)
    (folder / "latin.txt").write_bytes(b"caf\xe9\n")
    (folder / "train.py").write_text("epochs = 3\n")
    found = _source(folder)
    assert {each["path"]: each["why"] for each in found.left_out} == {
        "large.txt": "the difference would be larger than 1 MiB",
        "weights.bin": "it is not text",
        "latin.txt": "it is not UTF-8",
    }
    assert "epochs = 3" in found.diff


def test_file_names_that_are_not_utf8_are_taken(folder: Path) -> None:
    name = os.fsdecode(b"caf\xe9.txt")
    (folder / name).write_text("new\n")
    found = _source(folder)
    assert '"b/caf\\351.txt"' in found.diff
    found.diff.encode()
    (folder / name).write_bytes(b"\0")
    assert [each["path"] for each in _source(folder).left_out] == ["caf\\xe9.txt"]


def test_many_files_are_limited(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_MAX_FILES", 2)
    for number in range(4):
        (folder / f"new{number}.py").write_text("x\n")
    found = _source(folder)
    assert found.diff.count("diff --git") == 2
    assert found.problem == "More than 2 files differ from the commit: the others are not named."


def test_a_detached_head_has_no_branch(folder: Path) -> None:
    git(folder, "checkout", "-q", "--detach")
    found = _source(folder)
    assert (found.branch, len(found.commit)) == ("", 40)


def test_a_repository_without_commits_says_so(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "work")
    (tmp_path / "train.py").touch()
    assert _source(tmp_path) == Source(branch="work", is_dirty=True, problem="The repository has no commit yet.")


def test_a_shallow_clone_has_itscommit_all(folder: Path, tmp_path: Path) -> None:
    (folder / "train.py").write_text("epochs = 2\n")
    commit = commit_all(folder)
    git(folder, "clone", "-q", "--depth", "1", f"file://{folder}", str(tmp_path / "shallow"))
    found = _source(tmp_path / "shallow")
    assert (found.commit, found.repository, found.is_dirty) == (commit, f"file://{folder}", False)


def test_a_submodule_shows_itscommit_all(folder: Path, tmp_path: Path) -> None:
    library = tmp_path / "library"
    library.mkdir()
    (library / "net.py").write_text("a\n")
    commit_all(library)
    git(folder, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "library")
    commit_all(folder)
    assert not _source(folder).is_dirty
    (folder / "library/net.py").write_text("b\n")
    found = _source(folder)
    assert "-dirty" in found.diff
    assert code_source(folder / "library", [Path("net.py")]).diff.startswith("diff --git a/net.py")


def test_a_folder_outside_of_a_repository_has_none(tmp_path: Path) -> None:
    assert code_source(tmp_path, []) == Source()


def test_without_git_there_is_no_source(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert code_source(folder, []) == Source()


@pytest.mark.parametrize("hangs", ["*", "diff"])
def test_git_that_hangs_is_given_up(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, hangs: str) -> None:
    real = subprocess.run(["which", "git"], capture_output=True, text=True, check=True).stdout.strip()
    fake = tmp_path / "bin" / "git"
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\ncase " $* " in *" {hangs} "*) exec sleep 60;; esac\nexec {real} "$@"\n')
    if hangs == "*":
        fake.write_text("#!/bin/sh\nexec sleep 60\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    found = code_source(folder, [], seconds=1.5)
    assert "git did not answer within 1.5 s" in found.problem
    assert bool(found.commit) == (hangs == "diff")


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://user:secret@host/a.git", "https://host/a.git"),
        ("https://ghp_token@host:8443/a.git?private_token=x#y", "https://host:8443/a.git"),
        ("git@github.com:a/b.git", "git@github.com:a/b.git"),
        ("ssh://git:secret@host:22/a", "ssh://git@host:22/a"),
        ("/srv/git/a.git", "/srv/git/a.git"),
        ("ext::sh -c 'cat secret'", "ext"),
    ],
)
def test_addresses_lose_their_credentials(address: str, shown: str) -> None:
    assert without_credentials(address) == shown


def test_commands_lose_their_secrets() -> None:
    words = ["tidepool", "run", "train.py", "--set", "api_key=abc", "--", "--hf-token", "abc", "--lr", "0.1"]
    words += [
        "--password=x y",
        "https://u:p@host/x",
        "WANDB_API_KEY=1",
        "--tokenizer=bert",
        "hf_abcdefghijklmnopqrstuv",
    ]
    assert command_text(words) == (
        "tidepool run train.py --set 'api_key=***' -- --hf-token '***' --lr 0.1 "
        "'--password=***' 'https://***@host/x' 'WANDB_API_KEY=***' --tokenizer=bert '***'"
    )


def test_sources_named_like_secrets_are_no_secrets() -> None:
    assert not any(map(is_secret_file, ("tokenizer.json", "secrets_manager.py", ".env.example", "model/keys.py")))
