"""A notebook's cell in a rank: run among the notebook's names, and what comes back."""

import linecache
import sys
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cloudpickle

__all__ = ["TITLE", "Outcome", "run"]

#: Names the cell in tracebacks.
TITLE = "<cell>"


@dataclass(frozen=True)
class Outcome:
    """Result of a cell in rank 0."""

    #: Names that it has assigned -> their values, each pickled by itself: who lacks what one needs loads the others.
    values: Mapping[str, bytes]
    #: Names that it gave modules -> the modules' own names.
    modules: Mapping[str, str]
    #: Names whose values cannot be sent -> why.
    left: Mapping[str, str]


def run(namespace: dict[str, Any], source: str, wanted: list[str] | None, names: Mapping[str, Any]) -> Outcome:
    """Run the cell in a namespace. names: of the notebook. wanted: what shall come back; None: what it assigns.

    Raises NameError for a wanted name that there is not, TypeError for one that cannot be sent.
    """
    linecache.cache[TITLE] = (len(source), None, source.splitlines(keepends=True), TITLE)
    namespace.update(names)
    before = dict(namespace)
    exec(compile(source, TITLE, "exec"), namespace)  # noqa: S102 - the user's own cell
    if missing := [name for name in wanted or () if name not in namespace]:
        raise NameError(f"The cell has no {', '.join(missing)}: correct --out.")
    changed = [name for name, value in namespace.items() if name not in before or before[name] is not value]
    chosen = [name for name in changed if not name.startswith("_")] if wanted is None else wanted
    found = {name: namespace[name] for name in chosen}
    modules = {name: value.__name__ for name, value in found.items() if isinstance(value, types.ModuleType)}
    values: dict[str, bytes] = {}
    left: dict[str, str] = {}
    for name in found.keys() - modules.keys():
        try:
            values[name] = cloudpickle.dumps(_at_home(found[name]))
        except Exception as error:  # a class may raise anything when it is pickled
            left[name] = str(error) or type(error).__name__
    if left and wanted is not None:
        name, problem = next(iter(left.items()))
        raise TypeError(f"{name} cannot be sent back ({problem}): remove it from --out, or write it to RESULT_DIR.")
    return Outcome(values, modules, left)


def _at_home(value: Any) -> Any:
    """Convert a value for a machine without this GPU and process group: to the CPU, and models out of their DDP."""
    torch = sys.modules.get("torch")
    if torch is None:
        return value
    if isinstance(value, torch.nn.parallel.DistributedDataParallel):
        value = value.module
    return value.cpu() if isinstance(value, torch.nn.Module | torch.Tensor) else value
