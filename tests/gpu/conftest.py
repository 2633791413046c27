from tests.runtime.conftest import forkserver, make_lab

__all__ = ["forkserver", "make_lab"]
