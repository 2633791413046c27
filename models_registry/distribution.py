"""Detection of scripts that train on several GPUs, as their code shows it; it is never run.

`is_distributed`: the script trains in one process per GPU, which torchrun or Tidepool starts. `is_one_process`: one
process uses several GPUs. It starts the others itself, or its library divides each batch among the GPUs.
"""

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from models_registry.script_declarations import LOCAL_RANK_ARGUMENTS

__all__ = ["LIGHTNING", "WITH_TRAINERS", "Distribution", "distribution_of"]

LIGHTNING = frozenset({"lightning", "pytorch_lightning"})
#: Modules with the Trainer of Transformers, and classes that derive from it.
WITH_TRAINERS = frozenset({"adapters", "optimum", "sentence_transformers", "setfit", "transformers", "trl", "unsloth"})
#: Modules whose scripts are started by torchrun, or like it.
_DISTRIBUTED_MODULES = frozenset(
    {"accelerate", "colossalai", "composer", "deepspeed", "fairscale", "lightning_fabric", "torchtitan", *LIGHTNING}
)
#: Names of functions and classes that form a process group, or need one.
_DISTRIBUTED_NAMES = frozenset(
    {
        *("DistributedDataParallel", "FSDPModule", "FullyShardedDataParallel", "fully_shard"),
        *("init_device_mesh", "init_process_group", "initialize_model_parallel", "launch_from_torch"),
    }
)
#: Functions of torchtune that form a process group, or need one.
_TORCHTUNE_NAMES = frozenset({"get_world_size_and_rank", "init_distributed", "shard_model"})
_DISTRIBUTED_WORDS = frozenset(
    {"LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE", *(f"--{name}" for name in LOCAL_RANK_ARGUMENTS)}
)
#: Word that only a process that something else has started finds in its environment or arguments.
_LOCAL_RANKS = frozenset({"LOCAL_RANK", *(f"--{name}" for name in LOCAL_RANK_ARGUMENTS)})

#: Numbers of processes on the host, and of hosts.
_HOST_WORDS = frozenset({"GROUP_WORLD_SIZE", "LOCAL_WORLD_SIZE"})

#: Functions that start a process for each GPU, by their full names.
_LAUNCHERS = frozenset(
    {
        *("torch.multiprocessing.spawn", "torch.multiprocessing.start_processes"),
        *("torch.multiprocessing.spawn.spawn", "torch.multiprocessing.spawn.start_processes"),
        *("torch.multiprocessing.spawn.SpawnContext", "torch.distributed.run.main", "torch.distributed.run.run"),
        *("torch.distributed.launcher.launch_agent", "torch.distributed.launcher.api.launch_agent"),
        *("accelerate.launchers.notebook_launcher", "accelerate.notebook_launcher"),
        *("accelerate.launchers.debug_launcher", "accelerate.debug_launcher"),
        *("detectron2.engine.launch", "detectron2.engine.launch.launch"),
        *("ray.train.torch.TorchTrainer", "ultralytics.YOLO"),
    }
)
#: Names of such functions that no other library has.
_LAUNCHER_NAMES = frozenset({"debug_launcher", "elastic_launch", "notebook_launcher"})
#: Classes by which one process trains on several GPUs.
_DIVIDING_NAMES = frozenset({"DataParallel", "MirroredStrategy"})
#: Programs and modules that start a process for each GPU.
_PROGRAMS = frozenset({"composer", "deepspeed", "horovodrun", "torchrun"})
_PROGRAM_MODULES = frozenset(
    {"accelerate.commands.launch", "deepspeed.launcher.runner", "torch.distributed.launch", "torch.distributed.run"}
)
#: Functions that run a command, by their full names.
_RUNNERS = frozenset({"os.popen", "os.system", "pexpect.spawn", "pty.spawn", "sh.Command"})
_RUNNER_PREFIXES = ("subprocess.", "os.exec", "os.spawn", "os.posix_spawn", "asyncio.create_subprocess_")
_PROCESSES = frozenset({"Process", "Pool", "ProcessPoolExecutor"})
#: Values of `device_map` by which a model is divided among the GPUs of one process.
_DEVICE_MAPS = frozenset({"auto", "balanced", "balanced_low_0", "sequential"})


@dataclass(frozen=True)
class Distribution:
    is_distributed: bool
    is_one_process: bool
    #: Whether the processes must be as many on each host: Lightning multiplies `devices` and `num_nodes`, and other
    #: scripts ask for the number on their host.
    needs_equal_hosts: bool


def distribution_of(trees: Sequence[ast.AST]) -> Distribution:
    """Return how a script with these sources trains on several GPUs."""
    paths, names = set[str](), set[str]()
    for tree in trees:
        paths |= _paths(tree)
        names |= {name for node in ast.walk(tree) for name in _names(node)}
    modules = {path.partition(".")[0] for path in paths}
    words, set_words = _words(trees)
    divides = bool(names & _DIVIDING_NAMES) or any(_divides_model(node) for tree in trees for node in ast.walk(tree))
    is_distributed = bool(
        modules & _DISTRIBUTED_MODULES
        or names & _DISTRIBUTED_NAMES
        or words & _DISTRIBUTED_WORDS
        or ("torchtune" in modules and names & _TORCHTUNE_NAMES)
        or any(_is_trainer(path, names) for path in paths)
    )
    # A script that reads LOCAL_RANK is started by something else, whatever it could start.
    is_started = bool(words & _LOCAL_RANKS) and "LOCAL_RANK" not in set_words
    starts = _starts_processes(trees, paths, names)
    is_one_process = not is_started and (starts or (divides and not is_distributed))
    needs_equal = bool(modules & {"lightning_fabric", *LIGHTNING} or words & _HOST_WORDS)
    return Distribution(is_distributed, is_one_process, needs_equal_hosts=is_distributed and needs_equal)


def _is_trainer(path: str, names: Iterable[str]) -> bool:
    """Return whether the path names a Trainer of a library, or all names of a library among which one is used."""
    module, _, name = path.partition(".")
    if module not in WITH_TRAINERS:
        return False
    last = name.rpartition(".")[2]
    return last.endswith("Trainer") or (last == "*" and any(each.endswith("Trainer") for each in names))


def _starts_processes(trees: Sequence[ast.AST], paths: set[str], names: set[str]) -> bool:
    if paths & _LAUNCHERS or names & _LAUNCHER_NAMES:
        return True
    if any(path in _RUNNERS or path.startswith(_RUNNER_PREFIXES) for path in paths) and any(map(_has_command, trees)):
        return True
    forks = any(path.startswith(("torch.multiprocessing", "multiprocessing", "concurrent.futures")) for path in paths)
    return forks and bool(names & _PROCESSES) and any(_numbers_ranks(node) for tree in trees for node in ast.walk(tree))


def _numbers_ranks(node: ast.AST) -> bool:
    """Return whether the node is an `init_process_group` with a rank that is none of the environment's."""
    if not isinstance(node, ast.Call) or "init_process_group" not in _names(node.func):
        return False
    ranks = [keyword.value for keyword in node.keywords if keyword.arg == "rank"]
    return any(not _asks_environment(rank) for rank in ranks)


def _asks_environment(node: ast.AST) -> bool:
    return any(name in ("environ", "getenv") for each in ast.walk(node) for name in _names(each))


def _divides_model(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.keyword) and node.arg == "device_map" and getattr(node.value, "value", 0) in _DEVICE_MAPS
    )


# --- names -----------------------------------------------------------------------------------------------------------


def _names(node: ast.AST) -> tuple[str, ...]:
    """Return the plain names in one node."""
    if isinstance(node, ast.ImportFrom) and node.level == 0:
        return tuple(alias.name for alias in node.names)
    if isinstance(node, ast.Attribute):
        return (node.attr,)
    return (node.id,) if isinstance(node, ast.Name) else ()


def _paths(tree: ast.AST) -> set[str]:
    """Return the full names of the imported modules, classes and functions that the source names."""
    full = _imported(tree)
    found = set(full.values()) | {
        alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and (path := _path(node.value, full)):
            full |= {target.id: path for target in node.targets if isinstance(target, ast.Name)}
    return found | {path for node in ast.walk(tree) if (path := _path(node, full))}


def _imported(tree: ast.AST) -> dict[str, str]:
    """Return name in the source -> full name, of everything that is imported anywhere in it."""
    full: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            full |= {alias.asname: alias.name for alias in node.names if alias.asname}
            full |= {name: name for alias in node.names if not alias.asname and (name := alias.name.partition(".")[0])}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            full |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return full


def _path(node: ast.AST, full: Mapping[str, str]) -> str:
    """Return the full name of an expression such as `mp.spawn`; "" if it is none of something imported."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in full:
        return ""
    return ".".join([full[node.id], *reversed(parts)])


# --- words -----------------------------------------------------------------------------------------------------------


def _words(trees: Iterable[ast.AST]) -> tuple[set[str], set[str]]:
    """Return all strings of the code, and those that are names of variables that it sets."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    keys = [node.slice for node in nodes if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)]
    keys += [key for node in nodes if isinstance(node, ast.Dict) for key in node.keys if key]
    keys += [node.args[0] for node in nodes if isinstance(node, ast.Call) and node.args and _sets(node.func)]
    return set(filter(None, map(_word, nodes))), set(filter(None, map(_word, keys)))


def _sets(function: ast.AST) -> bool:
    return bool({"putenv", "setdefault", "setenv"}.intersection(_names(function)))


def _word(node: ast.AST) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _has_command(tree: ast.AST) -> bool:
    """Return whether the source contains a command that starts a process for each GPU, outside of docstrings."""
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return any(_is_command(node) for node in ast.walk(tree) if id(node) not in docs)


def _is_command(node: ast.AST) -> bool:
    """Return whether the node is such a command: a list of words, or a text for a shell."""
    if isinstance(node, ast.List | ast.Tuple):
        return _starts_program([_word(each) for each in node.elts])
    if isinstance(node, ast.Call):
        return len(node.args) > 1 and _starts_program([_word(each) for each in node.args])
    is_begun = isinstance(node, ast.JoinedStr) and bool(node.values)
    words = _word(node.values[0] if isinstance(node, ast.JoinedStr) and node.values else node).split()
    # A sentence may begin with the name of a program, too.
    is_text = is_begun or words == ["torchrun"] or any(word.startswith("-") or word.endswith(".py") for word in words)
    return is_text and _starts_program(words)


def _starts_program(words: Sequence[str]) -> bool:
    given = list(words)
    while given and "=" in given[0]:  # a variable of the environment before the command
        del given[0]
    name = given[0].rpartition("/")[2] if given else ""
    modules = {module for flag, module in pairwise(given) if flag == "-m"}
    return name in _PROGRAMS or [name, *given[1:2]] == ["accelerate", "launch"] or bool(modules & _PROGRAM_MODULES)
