"""Static inspection of a model's code, which is never run."""

import ast
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from tidepool.script_modules import module_of

from core.errors import UserError, field_error
from core.folders import regular_files
from models_registry.data_variables import needs_data
from models_registry.distribution import LIGHTNING, WITH_TRAINERS, Distribution, distribution_of
from models_registry.in_batch import IN_BATCH, compares_in_batch
from models_registry.models import RegisteredModelVersion
from models_registry.script_declarations import LONG_NAME, Argument, Continues, Declared, Takes
from models_registry.unknown_options import is_declaring, may_take_others

__all__ = [
    "COMPAT_MODULES",
    "CodeFacts",
    "EntryPointWanted",
    "checked_entry_point",
    "found_entry_point",
    "imported_modules",
    "imports_within",
    "inspect_code",
]

_Engine = RegisteredModelVersion.Engine

#: Compatibility folder -> modules that a script written for that system imports.
COMPAT_MODULES: Mapping[str, frozenset[str]] = {
    "wmla": frozenset(
        {
            *("emetrics", "fabric_model", "monitor_pth", "pyedt", "pth_parameter_mgr"),
            # Modules whose import raises an error that names the alternative.
            *("inference_helper", "monitor_tf", "redhareapi", "tf_parameter_mgr"),
        }
    ),
    "adaptdl": frozenset({"adaptdl"}),
    # Given to search algorithms when they are installed, for scripts may well have modules of that name of their own.
    "wmla_plugins": frozenset(),
    "nni": frozenset({"nni"}),
}
#: Arguments that WMLA passes to scripts: folders for the trained model and for initial weights.
FOLDER_ARGUMENTS = frozenset({"train_dir", "weights"})

_FABRIC = frozenset({"fabric_model", "pyedt"})
_MANAGER = "pth_parameter_mgr"
#: Classes of distributed libraries that take the number of processes, and their arguments, which are multiplied.
_LAUNCHERS = frozenset({"Trainer", "Fabric"})
_COUNTS = ("devices", "num_nodes")
#: Names of layers and functions that draw random numbers in a step or normalise over the batch.
_BY_BATCH = re.compile(
    r"(Lazy)?BatchNorm[123]d|(Feature)?(Alpha)?[Dd]ropout[123]?d?|(feature_)?alpha_dropout|batch_norm|RReLU|"
    r"Transformer(En|De)coderLayer"
)
#: Modules and names of tidepool that scripts of any engine use.
_ANY_SCRIPT = frozenset({"tidepool", "tidepool.trial"})
#: Usual names of entry points.
_USUAL = ("main.py", "train.py", "run.py")
_MODULE = re.compile(r"\w+(\.\w+)*")
#: A longer name is none of a file.
_LONGEST_MODULE = 240
_NO_SCRIPT = re.compile(r"(^|/)(setup|conftest|__init__|test_[^/]*|[^/]*_test)\.py$|(^|/)(tests?|docs)/")
_CANDIDATES_SHOWN = 5
_MAX_SOURCE_BYTES = 4 * 1024**2
#: Nodes in which statements are, imports among them.
_BLOCKS = (ast.stmt, ast.excepthandler, ast.match_case)


class EntryPointWanted(UserError):
    """Several scripts are candidates for the entry point: a person has to choose one of `scripts`."""

    def __init__(self, scripts: list[str]) -> None:
        sentence = f"Several scripts can be the entry point: {_listed_names(scripts)}. Choose one."
        super().__init__(sentence, code="entry_point", fields={"entry_point": [sentence]})
        self.scripts = scripts


@dataclass(frozen=True)
class CodeFacts:
    compat: list[str]
    #: Syntax error of the script; it can still be registered.
    warning: str | None
    declared: Declared = field(default_factory=Declared)
    #: Engine: elastic, several fixed processes, or one process.
    engine: str = _Engine.SINGLE
    #: Whether it declares data for validation: a FabricModel does, and a Session with `validate_on`.
    can_validate: bool = False
    #: Whether it exits at an undeclared option: it uses `parse_args` and never `parse_known_args`.
    refuses_unknown_options: bool = False

    @property
    def elastic(self) -> bool:
        """Whether the code uses a Session, a FabricModel, a prepared loop or AdaptDL."""
        return self.engine == _Engine.ELASTIC

    @property
    def asks_manager(self) -> bool:
        return self.declared.asks_manager

    @property
    def arguments(self) -> list[Argument]:
        """Arguments that take a value, in the order of the files."""
        return [argument for argument in self.declared.arguments if argument.takes == "value"]

    @property
    def folder_arguments(self) -> list[str]:
        """The WMLA arguments for folders that the script declares."""
        return sorted({argument.name for argument in self.arguments} & FOLDER_ARGUMENTS)


@dataclass
class _Found:
    modules: set[str] = field(default_factory=set)
    #: Modules and names of tidepool that are imported, such as `tidepool.torch` and `tidepool.trial`.
    of_tidepool: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    arguments: dict[str, Argument] = field(default_factory=dict)
    #: Numbers of processes that calls ask a library for.
    processes: set[int] = field(default_factory=set)


def checked_entry_point(folder: Path, entry_point: str) -> str:
    """Return the path of the entry point relative to `folder`.

    `package.train`, also after `-m`, names the file that `python -m package.train` runs. Raises UserError if there is
    no such file, or if its package is the folder itself.
    """
    entry_point = _file_of_module(folder, entry_point)
    try:
        file = (folder / entry_point).resolve()
        relative = file.relative_to(folder.resolve()).as_posix()
        found = bool(entry_point) and file.is_file()
    except (OSError, ValueError):
        relative, found = "", False
    if not found:
        raise field_error("entry_point", _not_found(folder, entry_point))
    if len(relative) > 255:
        raise field_error(
            "entry_point",
            "The path of the entry point has more than 255 characters: move the script to a higher folder.",
        )
    module = module_of(folder, relative)
    if module is not None and module.root == "..":
        raise field_error(
            "entry_point",
            f"{relative} imports from the package that it is in, and that package is the folder itself: give the "
            "folder above it.",
        )
    return relative


def _file_of_module(folder: Path, entry_point: str) -> str:
    name = entry_point.removeprefix("-m ").strip()
    if not _MODULE.fullmatch(name) or len(name) > _LONGEST_MODULE or (folder / name).is_file():
        return entry_point
    path = name.replace(".", "/")
    files = [f"{path}.py", f"{path}/__main__.py"]
    return next((file for file in files if (folder / file).is_file()), entry_point)


def found_entry_point(folder: Path) -> str:
    """Return the only candidate for the entry point.

    Raises EntryPointWanted if there are several, and UserError if the script cannot be parsed.
    """
    problems: dict[str, str] = {}
    trees = _trees(folder, problems)
    broken = [name for name in problems if name in _USUAL or not trees]
    if broken and not trees.keys() & set(_USUAL):
        raise field_error("entry_point", _not_python(broken[0], problems[broken[0]]))
    if folder.is_file() or len(trees) == 1:
        return next(iter(trees), folder.name)
    imported = {name for each in trees for name in _imports(each, trees)}
    scripts = [name for name in trees if not _NO_SCRIPT.search(name) and name not in imported]
    begun = [name for name in scripts if _is_begun(trees[name])] or scripts
    usual = [name for name in _USUAL if name in begun]
    if len(usual) == 1 or len(begun) == 1:
        return (usual or begun)[0]
    if not begun:
        raise field_error("entry_point", _not_found(folder, ""))
    raise EntryPointWanted(sorted(begun, key=lambda name: (name not in usual, name.count("/"), name)))


def inspect_code(folder: Path, entry_point: str) -> CodeFacts:
    """Inspect the entry point and its imports from the folder; for the framework, all files."""
    problems: dict[str, str] = {}
    trees = _trees(folder, problems)
    whole, found = _Found(), _Found()
    reached = _reached(entry_point, trees) or set(trees)
    for name, tree in trees.items():
        for target in (whole, found) if name in reached else (whole,):
            _look(tree, target)
    problem = problems.get(entry_point)
    fabric = bool(found.modules & _FABRIC)
    sources = [trees[name] for name in reached]
    distribution = distribution_of(sources)
    refuses = "parse_args" in found.names and "parse_known_args" not in found.names
    return CodeFacts(
        compat=sorted(name for name, modules in COMPAT_MODULES.items() if modules & whole.modules),
        warning=_not_python(entry_point, problem) if problem else None,
        declared=Declared(
            arguments=tuple(found.arguments.values()),
            is_complete=refuses and "ArgumentParser" in found.names
            and not may_take_others(sources),
            reads_data=fabric or _MANAGER in found.modules or needs_data(sources),
            asks_manager=_MANAGER in found.modules,
            layers=(*_layers(found.names), *_losses(sources)),
            processes=max(found.processes, default=None),
            continues=_continues(found),
            uses_several_gpus=distribution.is_one_process,
            needs_equal_hosts=distribution.needs_equal_hosts,
        ),
        engine=_engine_of(found, distribution),
        can_validate=fabric or "validate_on" in found.names,
        refuses_unknown_options=refuses,
    )  # fmt: skip


def _layers(names: set[str]) -> tuple[str, ...]:
    """Return each layer once: an attribute `dropout` adds nothing to the layer Dropout."""
    found = sorted(name for name in names if _BY_BATCH.fullmatch(name))
    layers = [name for name in found if name[0].isupper()]
    kinds = {_kind(name) for name in layers}
    return (*layers, *(name for name in found if name[0].islower() and _kind(name) not in kinds))


def _losses(trees: Sequence[ast.AST]) -> tuple[str, ...]:
    return (IN_BATCH,) if any(map(compares_in_batch, trees)) else ()


def _kind(name: str) -> str:
    return "dropout" if "dropout" in name.lower() else "batch" if "batch" in name.lower() else name


def _engine_of(found: _Found, distribution: Distribution) -> str:
    if found.modules & {*_FABRIC, "adaptdl"} or found.of_tidepool - _ANY_SCRIPT:
        return _Engine.ELASTIC
    if distribution.is_one_process:
        return _Engine.SINGLE
    return _Engine.FIXED if distribution.is_distributed else _Engine.SINGLE


def _continues(found: _Found) -> Continues:
    if found.modules & LIGHTNING and found.names & {"Trainer", "LightningCLI"}:
        return "lightning"
    if found.modules & WITH_TRAINERS and any(name.endswith("Trainer") for name in found.names):
        return "trainer"
    if "accelerate" in found.modules and "Accelerator" in found.names:
        return "load_state" if "load_state" in found.names else "anew"
    return ""


def imported_modules(folder: Path, entry_point: str) -> set[str]:
    """Return the top-level modules that the entry point, and its imports from the folder, require.

    Optional imports (in a function, an `if` or a `try`) do not count.
    """
    trees = _trees(folder)
    reached = _reached(entry_point, trees)
    own = {part for name in trees for part in (*PurePosixPath(name).parts[:-1], PurePosixPath(name).stem)}
    found: set[str] = set()
    for name in reached:
        for node in getattr(trees[name], "body", []):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                found.add(node.module.split(".")[0])
    return found - own


def imports_within(folder: Path, entry_point: str, module: str) -> bool:
    """Return whether the entry point, or what it imports from the folder, imports the module: in functions, too.

    Imports in a `try` do not count: the script goes on without the module.
    """
    trees = _trees(folder)
    return any(_imports_module(trees[name], module) for name in _reached(entry_point, trees))


def _imports_module(tree: ast.AST, module: str) -> bool:
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [] if node.level else [node.module or ""]
        if any(name.partition(".")[0] == module for name in names):
            return True
        tried = node.body if isinstance(node, ast.Try) else []
        waiting += [each for each in ast.iter_child_nodes(node) if isinstance(each, _BLOCKS) and each not in tried]
    return False


# --- the files, and which of them import which ------------------------------------------------------------------------


def _trees(folder: Path, problems: dict[str, str] | None = None) -> dict[str, ast.AST]:
    """Return the syntax trees of all sources, by name. `problems`: filled with what Python says about the others."""
    trees: dict[str, ast.AST] = {}
    for name, file in regular_files(folder):
        if not name.endswith(".py") or file.stat().st_size > _MAX_SOURCE_BYTES:
            continue
        try:
            trees[name] = ast.parse(file.read_bytes())
        # ast reports deep nesting by MemoryError or RecursionError, and NUL bytes by ValueError.
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            if problems is not None:
                problems[name] = _problem_words(error)
    return trees


def _problem_words(error: Exception) -> str:
    """Return the error of the parser with its line, without the file name that `ast` makes up."""
    return f"line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) and error.lineno else str(error)


def _reached(entry_point: str, trees: dict[str, ast.AST]) -> set[str]:
    """Return the entry point and the sources that it imports, directly or indirectly."""
    reached: set[str] = set()
    waiting = {entry_point} & trees.keys()
    while waiting:
        name = waiting.pop()
        reached.add(name)
        waiting |= _imports(name, trees, PurePosixPath(entry_point).parent) - reached
    return reached


def _imports(name: str, trees: dict[str, ast.AST], script_folder: PurePosixPath | None = None) -> set[str]:
    here = PurePosixPath(name).parent
    bases = {PurePosixPath("."), script_folder or here}
    found = set()
    for node in ast.walk(trees[name]):
        modules, places = [], bases
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [".".join(filter(None, (node.module, alias.name))) for alias in node.names]
            places = {[here, *here.parents][min(node.level - 1, len(here.parents))]} if node.level else bases
        found |= {path for module in modules for base in places for path in _paths(base, module) if path in trees}
    return found - {name}


def _paths(base: PurePosixPath, module: str) -> Iterator[str]:
    """Yield the files that an import of a.b.c can run: those of a, a.b and a.b.c."""
    path = base
    for part in module.split("."):
        path /= part
        yield f"{path}.py"
        yield str(path / "__init__.py")


def _is_begun(tree: ast.AST) -> bool:
    """Return whether the source is a script: it uses `__name__`."""
    return any(isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(tree))


# --- contents of a file ----------------------------------------------------------------------------------------------


def _look_at_modules(names: Sequence[str], found: _Found) -> None:
    """Note imported modules, and names imported from modules. names: with all dots."""
    modules = {name: name.split(".")[0] for name in names}
    found.modules |= set(modules.values())
    found.of_tidepool |= {name for name, module in modules.items() if module == "tidepool"}


def _look(tree: ast.AST, found: _Found) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            _look_at_modules([alias.name for alias in node.names], found)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            _look_at_modules([f"{node.module}.{alias.name}" for alias in node.names], found)
            found.names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute):
            found.names.add(node.attr)
        elif isinstance(node, ast.Name):
            found.names.add(node.id)
        elif isinstance(node, ast.Call) and (processes := _processes(node)):
            found.processes.add(processes)
        elif is_declaring(node) and (argument := _declared(node)):
            found.arguments.setdefault(argument.name, argument)


def _processes(call: ast.Call) -> int | None:
    """Return the number of processes that the call asks for, as `Trainer(devices=4, num_nodes=2)` does; None if it does
    not say, or means all there are."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    counts = {
        keyword.arg: len(keyword.value.elts) if isinstance(keyword.value, ast.List) else _constant(keyword.value)
        for keyword in call.keywords
        if keyword.arg in _COUNTS
    }
    if name not in _LAUNCHERS or "devices" not in counts:
        return None
    whole = [int(str(count)) for count in counts.values() if _is_whole(count)]
    return math.prod(whole) if len(whole) == len(counts) else None


def _is_whole(count: object) -> bool:
    return not isinstance(count, bool) and re.fullmatch(r"[1-9]\d{0,3}", str(count)) is not None


def _declared(call: ast.Call) -> Argument | None:
    """Return the argument that the call declares, under its first long name; None if it has no long name."""
    keywords = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    texts = [text for argument in call.args if isinstance(text := _constant(argument), str)]
    # click declares both names of a switch in one string: "--shout/--no-shout".
    names = [text[2:] for each in texts for text in each.split("/") if LONG_NAME.fullmatch(text)]
    if not names:
        return None
    default = _constant(keywords.get("default"))
    is_plain = default is None or isinstance(default, str | bool | int)
    kind = keywords.get("type")
    return Argument(
        names[0],
        _listed(keywords.get("choices") or _choice_type(kind)),
        default if is_plain or (isinstance(default, float) and math.isfinite(default)) else None,
        str(_constant(keywords.get("help")) or ""),
        takes=_takes(keywords, texts),
        is_number=isinstance(kind, ast.Name) and kind.id in ("int", "float"),
        aliases=tuple(names[1:]),
    )


def _takes(keywords: dict[str, ast.expr], texts: list[str]) -> Takes:
    action = keywords.get("action")
    word = action.attr if isinstance(action, ast.Attribute) else action.id if isinstance(action, ast.Name) else None
    if word == "BooleanOptionalAction" or any("/--no-" in text for text in texts):
        return "switch"
    if "is_flag" in keywords or _constant(action) in ("store_true", "store_false", "store_const", "count"):
        return "flag"
    return "words" if "nargs" in keywords else "value"


def _choice_type(node: ast.expr | None) -> ast.expr | None:
    """Return the list of a `click.Choice([...])`, or None."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "Choice" and node.args:
        return node.args[0]
    return None


def _listed(choices: ast.expr | None) -> tuple[object, ...] | None:
    if isinstance(choices, ast.List | ast.Tuple):
        return tuple(_constant(item) for item in choices.elts)
    return None if choices is None else ()


def _constant(node: ast.expr | None) -> object:
    """Return the value of a literal, including negative numbers; None otherwise."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        value = node.operand.value
        return -value if isinstance(value, int | float) else None
    return node.value if isinstance(node, ast.Constant) else None


def _not_python(name: str, problem: str) -> str:
    return f"{name} is not valid Python ({problem}): trainings fail until you correct it."


def _not_found(folder: Path, entry_point: str) -> str:
    scripts = [name for name, _ in regular_files(folder) if name.endswith(".py")]
    if not scripts:
        missing = ascii(entry_point[:100]) if entry_point else "the training script"
        return f"The folder contains no Python script: add {missing}."
    return (
        f"The entry point {entry_point[:100]!a} is not in the model's folder: choose one of {_listed_names(scripts)}."
    )


def _listed_names(scripts: list[str]) -> str:
    return ", ".join(scripts[:_CANDIDATES_SHOWN]) + (", …" if len(scripts) > _CANDIDATES_SHOWN else "")
