"""Source of a training: the commit that its code came from, the difference from that commit, and the typed command.

All of it is read by `git`, without external programs for differences, text conversions and monitors of files.
"""

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from tidepool.source_privacy import command_text, is_secret_file, without_credentials, without_tokens

__all__ = ["MAX_DIFF_BYTES", "Source", "code_source", "typed_command"]

MAX_DIFF_BYTES: Final = 1024**2
#: Most files of a difference, and most files that are named as left out.
_MAX_FILES: Final = 300
_MAX_NAMED: Final = 100
#: Seconds that git has for all of its answers.
_SECONDS: Final = 20.0
_GIT: Final = ("git", "--literal-pathspecs", "--no-pager", "-c", "core.fsmonitor=false", "-c", "core.quotePath=true")
_DIFF: Final = ("--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", "--submodule=short", "--relative")
_TOO_LARGE: Final = f"the difference would be larger than {MAX_DIFF_BYTES // 1024**2} MiB"
_MAX_WORDS: Final = 20_000


@dataclass(frozen=True)
class Source:
    #: Address of the repository, without credentials; "": it has none, or the code is not from a repository.
    repository: str = ""
    #: "": the code is not from a repository, or that has no commit.
    commit: str = ""
    #: "": no branch is checked out.
    branch: str = ""
    #: Whether the folder differed from the commit.
    is_dirty: bool = False
    #: Difference of the folder from the commit, which `git apply` takes.
    diff: str = ""
    #: Files that differ and are not in `diff`: {"path", "why"}.
    left_out: list[dict[str, str]] = field(default_factory=list)
    #: Sentence why a part is missing; "": none is.
    problem: str = ""
    #: The command as it was typed, with secret words replaced; "": there was none.
    command: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class _NoAnswer(Exception):
    """Git took too long."""


class _Refused(Exception):
    """Git refused the request; the text is its first line."""


def typed_command() -> str:
    """Return the command that started this process; "" in a notebook or an interactive interpreter."""
    words = sys.orig_argv
    name = Path(sys.argv[0]).name if sys.argv else ""
    is_of_notebook = "ipykernel" in " ".join(sys.argv[:1]) or "ipykernel_launcher" in words
    if not name or name == "-c" or is_of_notebook or hasattr(sys, "ps1"):
        return ""
    if name == "tidepool" or sys.argv[0].endswith("tidepool/__main__.py"):
        words = ["tidepool", *sys.argv[1:]]
    else:
        words = [Path(words[0]).name, *words[1:]]
    return _sendable(command_text(words))[:_MAX_WORDS]


def code_source(folder: Path, sent: Iterable[Path], *, seconds: float = _SECONDS) -> Source:
    """Return the source of a folder. Without git, or outside a repository, all of it is empty.

    sent: files that go to the site. Of files that git does not know, only these belong to the difference.
    """
    git = _Git(folder, time.monotonic() + seconds)
    late = f"git did not answer within {seconds:g} s."
    try:
        if git.run("rev-parse", "--is-inside-work-tree").strip() != b"true":
            return Source()
    except FileNotFoundError:
        return Source()
    except _NoAnswer:
        return Source(problem=late)
    except _Refused as error:
        return Source() if "not a git repository" in str(error) else Source(problem=f"git refused to answer: {error}")
    found = Source()
    try:
        found = replace(found, repository=git.address(), branch=git.line("symbolic-ref", "--quiet", "--short", "HEAD"))
        commit = git.line("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        if not commit:
            return replace(found, is_dirty=True, problem="The repository has no commit yet.")
        found = replace(found, commit=commit)
        return _with_difference(git, found, list(sent))
    except _NoAnswer:
        return replace(found, is_dirty=found.is_dirty, problem=f"The difference is unknown: {late}")
    except (_Refused, OSError) as error:
        return replace(found, problem=_sendable(f"git could not tell the difference: {error}"))


class _Git:
    def __init__(self, folder: Path, deadline: float) -> None:
        self._folder = folder
        self._deadline = deadline

    def run(self, *words: str | bytes, most: int = 64 * 1024**2, fine: tuple[int, ...] = (0,)) -> bytes:
        """Return git's answer, cut behind `most` bytes. Raises _NoAnswer, _Refused, and FileNotFoundError."""
        process = subprocess.Popen(
            [*_GIT, "-C", str(self._folder), *words],
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with process:
            try:
                answer, said = _read(process, most, self._deadline)
                is_cut = len(answer) > most
                if is_cut:
                    return answer
                process.wait(max(0.0, self._deadline - time.monotonic()))
            except (TimeoutError, subprocess.TimeoutExpired) as error:
                raise _NoAnswer from error
            finally:
                process.kill()
        if process.returncode not in fine:
            first = said.decode(errors="replace").strip().splitlines()
            raise _Refused(first[0] if first else f"exit code {process.returncode}")
        return answer

    def line(self, *words: str) -> str:
        """Return the first line of the answer; "" if git has none."""
        try:
            return _sendable(self.run(*words).decode(errors="replace").partition("\n")[0].strip())
        except _Refused:
            return ""

    def names(self, *words: str) -> list[bytes]:
        return [name for name in self.run(*words).split(b"\0") if name]

    def address(self) -> str:
        """Return the address of the remote that the branch follows, or else of origin, or of the first one."""
        remotes = self.run("remote").decode(errors="replace").split()
        followed = self.line("rev-parse", "--abbrev-ref", "--symbolic-full-name", "@{upstream}").partition("/")[0]
        for name in (followed, "origin", *remotes[:1]):
            if name in remotes:
                return without_credentials(self.line("remote", "get-url", "--", name))
        return ""


def _with_difference(git: _Git, found: Source, sent: list[Path]) -> Source:
    changed = git.names("diff", *_DIFF, "--name-only", "-z", "HEAD")
    new = git.names("ls-files", "--others", "--exclude-standard", "-z")
    known = {os.fsencode(file) for file in sent}
    new = [name for name in new if name in known]
    if not changed and not new:
        return found
    parts: list[str] = []
    left_out: list[dict[str, str]] = []
    total = 0
    late = ""
    for number, (name, is_new) in enumerate([*((each, False) for each in changed), *((each, True) for each in new)]):
        if number >= _MAX_FILES:
            late = f"More than {_MAX_FILES} files differ from the commit: the others are not named."
            break
        try:
            part, why = _part(git, name, is_new=is_new, most=MAX_DIFF_BYTES - total)
        except _NoAnswer:
            late = "git did not answer in time: the difference is incomplete."
            break
        if why:
            left_out.append({"path": name.decode("utf-8", "backslashreplace"), "why": why})
        else:
            parts.append(part)
            total += _cost(part)
    if len(left_out) > _MAX_NAMED:
        late = late or f"{len(left_out) - _MAX_NAMED} more files are left out of the difference."
    return replace(found, is_dirty=True, diff="".join(parts), left_out=left_out[:_MAX_NAMED], problem=late)


def _part(git: _Git, name: bytes, *, is_new: bool, most: int) -> tuple[str, str]:
    """Return the difference of a file, or why it is left out."""
    if is_secret_file(name.decode(errors="replace")):
        return "", "its name says that it is secret"
    try:
        if is_new:
            content = git.run("diff", *_DIFF[:-1], "--no-index", "--", os.devnull, name, most=most, fine=(0, 1))
        else:
            content = git.run("diff", *_DIFF, "HEAD", "--", name, most=most)
    except _Refused as error:
        return "", _sendable(f"git refused it ({error})")
    if len(content) > most:
        return "", _TOO_LARGE
    if _is_binary(content):
        return "", "it is not text"
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return "", "it is not UTF-8"
    if "-----BEGIN" in text and "PRIVATE KEY" in text:
        return "", "it contains a private key"
    return (without_tokens(text), "") if _cost(text) <= most else ("", _TOO_LARGE)


def _cost(text: str) -> int:
    """Return the size of a text, or a part of its size as JSON: a site takes requests of up to 2 MiB."""
    return max(len(text.encode()), len(json.dumps(text)) * 4 // 7)


def _is_binary(content: bytes) -> bool:
    # Without the option --binary, git has only a line for such a file, behind at most five lines of a head.
    return b"\0" in content or any(
        line.startswith(b"Binary files ") and line.endswith(b" differ") for line in content.split(b"\n", 6)[:6]
    )


def _read(process: "subprocess.Popen[bytes]", most: int, deadline: float) -> tuple[bytes, bytes]:
    """Read both streams to their ends, or until the answer has more than `most` bytes."""
    answer, said = bytearray(), bytearray()
    assert process.stdout is not None
    assert process.stderr is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, answer)
        selector.register(process.stderr, selectors.EVENT_READ, said)
        while selector.get_map() and len(answer) <= most:
            left = deadline - time.monotonic()
            ready = selector.select(left) if left > 0 else []
            if not ready:
                raise TimeoutError
            for key, _ in ready:
                piece = os.read(key.fd, 65536)
                if piece:
                    key.data.extend(piece)
                else:
                    selector.unregister(key.fileobj)
    return bytes(answer), bytes(said[:2000])


def _sendable(text: str) -> str:
    """Return the text without characters that JSON or the database does not take."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
