"""Errors of scripts that come with a sentence on what helps."""

import pytest

from jobs.messages import message, text_of
from tests.jobs.test_messages import END


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        ("RuntimeError: DataLoader worker (pid 3) is killed by signal: Bus error", "Shared memory (/dev/shm)"),
        ("SIGBUS: the process was ended by SIGBUS: bus error", "Shared memory (/dev/shm)"),
        ("RuntimeError: unable to write to file </torch_1_2_3>: No space left on device", "Shared memory (/dev/shm)"),
        ("OutOfMemory: the kernel killed the process because memory ran out", "The memory of the host"),
        ("RuntimeError: DataLoader worker (pid 3) is killed by signal: Killed", "The memory of the host"),
        ("ModuleNotFoundError: No module named 'timm'", "Add the package that provides it"),
        ("ValueError: bad", ""),
    ],
)
def test_an_error_comes_with_what_helps(error: str, advice: str) -> None:
    text = text_of(message("failed", **{**END, "error": error}))
    assert text.removeprefix(f"The script failed on a: {error}.").strip().startswith(advice)
    assert advice or text.endswith("bad.")
