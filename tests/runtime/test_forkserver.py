"""Tests of what a forkserver prepares for its children."""

import weakref

import torch
from tidepool.torch.warm_parent import leave_libraries


def test_children_unregister_none_of_torchs_operators_at_their_end() -> None:
    torch.library.Library("tidepool_test", "DEF")  # type: ignore[no-untyped-call]
    own = weakref.finalize(leave_libraries, print)
    leave_libraries()
    finalizers = list(weakref.finalize._registry)  # type: ignore[attr-defined]
    kept = {finalizer.peek()[1].__module__ for finalizer in finalizers if finalizer.atexit}
    assert own.atexit
    assert "torch.library" not in kept
    own.detach()
