"""A git repository in a folder of a test."""

import subprocess
from pathlib import Path

__all__ = ["commit_all", "git"]


def git(folder: Path, *words: str) -> str:
    """Run git in the folder, and return what it prints."""
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *identity, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, errors="replace").stdout.strip()


def commit_all(folder: Path) -> str:
    """Commit all files of the folder, in a new repository if there is none, and return the commit."""
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "change")
    return git(folder, "rev-parse", "HEAD")
