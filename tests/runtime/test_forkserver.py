"""Tests of what a forkserver prepares for its children."""

import subprocess
import sys
import weakref

import pytest
import torch
from tidepool.torch.warm_parent import leave_libraries

from tests.runtime.lab import RUNTIME


def test_children_unregister_none_of_torchs_operators_at_their_end() -> None:
    torch.library.Library("tidepool_test", "DEF")  # type: ignore[no-untyped-call]
    own = weakref.finalize(leave_libraries, print)
    leave_libraries()
    finalizers = list(weakref.finalize._registry)  # type: ignore[attr-defined]
    kept = {finalizer.peek()[1].__module__ for finalizer in finalizers if finalizer.atexit}
    assert own.atexit
    assert "torch.library" not in kept
    own.detach()


_LATE_CALL = """
import torch
from tidepool.torch import warm_parent
from torch._C._distributed_c10d import _create_work_from_future
if {warmed}:
    warm_parent.hear_warning_of_exceptions()
future = torch.futures.Future()
future.set_result([])
_create_work_from_future(future).exception()
"""


@pytest.mark.parametrize(("warmed", "lines"), [(True, 0), (False, 1)], ids=["a rank", "without a forkserver"])
def test_torch_does_not_tell_ranks_that_a_call_of_ours_goes(warmed: bool, lines: int) -> None:
    command = [sys.executable, "-c", _LATE_CALL.format(warmed=warmed)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={"PYTHONPATH": str(RUNTIME)})
    assert done.stderr.count("API is being deprecated") == lines
