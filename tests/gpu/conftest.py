from tests.runtime.conftest import make_lab, nursery

__all__ = ["make_lab", "nursery"]
