"""Looks at a model's code without running it."""

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path

from core.errors import field_error
from core.folders import regular_files
from models_registry.settings import Argument

__all__ = ["COMPAT_MODULES", "CodeFacts", "checked_entry_point", "inspect_code"]

#: Compatibility folder -> what a script imports when it is written for that system.
COMPAT_MODULES = {
    "wmla": frozenset(
        {
            *("emetrics", "fabric_model", "monitor_pth", "pyedt", "pth_parameter_mgr"),
            # What says, when it is imported, that it is not here.
            *("inference_helper", "monitor_tf", "redhareapi", "tf_parameter_mgr"),
        }
    )
}
#: What WMLA passes to each script: where to save the trained model, and where weights to begin with are.
FOLDER_ARGUMENTS = frozenset({"train_dir", "weights"})

_DECLARING = frozenset({"add_argument", "option"})
_LONG_NAME = re.compile(r"--[A-Za-z][A-Za-z0-9_.-]{0,63}")
_FABRIC = frozenset({"fabric_model", "pyedt"})
_MANAGER = "pth_parameter_mgr"
_CANDIDATES_SHOWN = 5
_MAX_SOURCE_BYTES = 4 * 1024**2


@dataclass(frozen=True)
class CodeFacts:
    compat: list[str]
    #: What is wrong with the script as Python sees it; it may be registered all the same.
    warning: str | None
    #: What its scripts declare by argparse, in the order of the files.
    arguments: list[Argument] = field(default_factory=list)
    #: It makes a tidepool Session or a FabricModel: it can be resized while it trains.
    elastic: bool = False
    #: It says what it is measured on: a FabricModel does, and a Session with `validate_on`.
    can_validate: bool = False
    #: It ends at an option that it does not declare: by `parse_args`, and nowhere `parse_known_args`.
    refuses_unknown_options: bool = False
    #: It imports WMLA's `pth_parameter_mgr`, which tells it every setting.
    asks_manager: bool = False

    @property
    def folder_arguments(self) -> list[str]:
        """Those of WMLA's arguments for folders that it declares."""
        return sorted({argument.name for argument in self.arguments} & FOLDER_ARGUMENTS)


@dataclass
class _Found:
    modules: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    arguments: dict[str, Argument] = field(default_factory=dict)


def checked_entry_point(folder: Path, entry_point: str) -> str:
    """The entry point relative to `folder`, which holds it as a regular file."""
    try:
        file = (folder / entry_point).resolve()
        relative = file.relative_to(folder.resolve()).as_posix()
        found = bool(entry_point) and file.is_file()
    except (OSError, ValueError):
        relative, found = "", False
    if not found:
        raise field_error("entry_point", _not_found(folder, entry_point))
    if len(relative) > 255:
        raise field_error("entry_point", "The entry point's path has more than 255 characters: move it up.")
    return relative


def inspect_code(folder: Path, entry_point: str) -> CodeFacts:
    found = _Found()
    warning = None
    for name, file in regular_files(folder):
        if not name.endswith(".py") or file.stat().st_size > _MAX_SOURCE_BYTES:
            continue
        try:
            tree = ast.parse(file.read_bytes())
            _look(tree, found)
        # ast reports deep nesting by MemoryError or RecursionError, and NUL bytes by ValueError.
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            if name == entry_point:
                warning = f"{name} is not valid Python ({error}): a job with it will fail."
    fabric = bool(found.modules & _FABRIC)
    return CodeFacts(
        compat=sorted(name for name, modules in COMPAT_MODULES.items() if modules & found.modules),
        warning=warning,
        arguments=list(found.arguments.values()),
        elastic=fabric or "tidepool" in found.modules,
        can_validate=fabric or "validate_on" in found.names,
        asks_manager=_MANAGER in found.modules,
        refuses_unknown_options="parse_args" in found.names and "parse_known_args" not in found.names,
    )


def _look(tree: ast.AST, found: _Found) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.modules |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.modules.add(node.module.split(".")[0])
        elif isinstance(node, ast.Attribute):
            found.names.add(node.attr)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _DECLARING:
            argument = _declared(node)
            if argument is not None:
                found.arguments.setdefault(argument.name, argument)


def _declared(call: ast.Call) -> Argument | None:
    """By its first long name; None for a flag, and for what takes several values."""
    keywords = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    if "nargs" in keywords or "is_flag" in keywords or _constant(keywords.get("action")) not in (None, "store"):
        return None
    texts = [text for argument in call.args if isinstance(text := _constant(argument), str)]
    names = [text[2:] for text in texts if _LONG_NAME.fullmatch(text)]
    if not names:
        return None
    choices = _listed(keywords.get("choices") or _choice_type(keywords.get("type")))
    return Argument(names[0], choices, _constant(keywords.get("default")), str(_constant(keywords.get("help")) or ""))


def _choice_type(node: ast.expr | None) -> ast.expr | None:
    """The list of a `click.Choice([...])`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "Choice" and node.args:
        return node.args[0]
    return None


def _listed(choices: ast.expr | None) -> tuple[object, ...] | None:
    if isinstance(choices, ast.List | ast.Tuple):
        return tuple(_constant(item) for item in choices.elts)
    return None if choices is None else ()


def _constant(node: ast.expr | None) -> object:
    """The value of a literal, a negative number too."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        value = node.operand.value
        return -value if isinstance(value, int | float) else None
    return node.value if isinstance(node, ast.Constant) else None


def _not_found(folder: Path, entry_point: str) -> str:
    scripts = [name for name, _ in regular_files(folder) if name.endswith(".py")]
    if not scripts:
        return f"The entry point {entry_point[:100]!a} is not there, nor any Python script: put it into the folder."
    listed = ", ".join(scripts[:_CANDIDATES_SHOWN]) + (", …" if len(scripts) > _CANDIDATES_SHOWN else "")
    return f"The entry point {entry_point[:100]!a} is not in the model's folder: name one of {listed}."
