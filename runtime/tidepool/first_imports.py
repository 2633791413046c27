"""Calls after the first import of a package or module by the script, which Tidepool itself never imports."""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["after_first_import"]


def after_first_import(names: frozenset[str], then: Callable[[], None]) -> None:
    """Call `then` once, after the first import of one of these modules; now, if one is imported already."""
    if names & sys.modules.keys():
        then()
    else:
        sys.meta_path.insert(0, _FirstImport(names, then))


class _FirstImport(MetaPathFinder):
    def __init__(self, names: frozenset[str], then: Callable[[], None]) -> None:
        self._names, self._then = names, then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._names:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Telling(spec.loader, self._then)
        return spec


class _Telling(Loader):
    """The loader that it stands in for; then says that the module is there."""

    def __init__(self, loader: Loader, then: Callable[[], None]) -> None:
        self._loader, self._then = loader, then

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._then()
