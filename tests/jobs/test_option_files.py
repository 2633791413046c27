"""An option of a training stands in three files at most.

They are its declaration, the message that brings it to a host, and the module that acts on it.
"""

import ast
import re
from pathlib import Path

import pytest

from jobs.options import OPTIONS

ROOT = Path(__file__).resolve().parent.parent.parent
MOST = 3
#: Folders of the control plane.
WEB = (
    *("accounts", "alerts", "core", "datasets", "insights", "jobs", "models_registry", "replay", "reports"),
    *("static/js", "templates", "tracking", "usage", "webapp", "wmla"),
)
#: All folders of the product. Benchmarks and examples use the API and the session as everybody does.
FOLDERS = (*WEB, "runtime", "scheduling", "workers")
#: Calls of a script that take arguments of the same names, and the libraries that make them for a script.
SCRIPTS = ("runtime/tidepool/torch/rank/session.py", "runtime/tidepool/torch/rank/prepared.py", "runtime/compat/")
#: A study has a seed of its own, which is no option of a training.
STUDIES = ("templates/studies/", "wmla/hypersearch")
#: Keys of NNI's configuration.
NNI = ("runtime/tidepool/client/nni_config.py",)
#: scripts/client-rows writes this file from the schema, whose fields follow from the declarations.
NOT_SEARCHED = (*SCRIPTS, *STUDIES, *NNI, "runtime/tidepool/client/rows.py")
#: Not counted, with the reason.
NOT_COUNTED = {
    **dict.fromkeys(
        ("min_slots", "max_slots", "priority", "max_seconds"),
        "the scheduler divides by it, its owner changes it at any time, and lists show it",
    ),
    "environment": "any process has one",
    "secrets": "pages, addresses and commands of the secrets themselves have the word as well",
}
#: Counted in the control plane alone: elsewhere the word names more than the option.
SHARED_WORDS = {
    "seed": "of every sequence of random numbers",
    "effective_batch_size": "the step of a session has it, on a cluster or not",
    "virtual_ranks": "the parts of a step, which many modules of a rank count",
    "placement": "of the scheduler: ranks on each host",
    "requirements": "of what a host installs",
}
_WISH = "the scheduler and replays count GPUs by it, hosts limit it, and `tidepool run` has an option of its own for it"
#: Options that more files name, with that number and the reason.
MORE: dict[str, tuple[int, str]] = {
    "autolog": (4, "`tidepool run` has a flag of its own for it"),
    "log_pattern": (6, "its owner changes it while the training runs: by an action, an address and a page"),
    "exactness": (
        7,
        "the Train page says what it means for the script; only an elastic one may be bitwise; its exchanges take room "
        "beside NCCL's channels",
    ),
    "virtual_ranks": (5, "the same; the most GPUs of a training follow from it"),
    "placement": (4, "the largest host of the group limits it; a replay has ranks on each host by this word"),
    "gpus_per_process": (
        9,
        "the engine of a training follows from it, wherever that is asked for; the Train page shows fields by it, and "
        "`tidepool run` has a flag of its own for it",
    ),
    "cpus_per_gpu": (8, f"{_WISH}; threads and the limit on cores follow it"),
    "memory_gib_per_gpu": (7, f"{_WISH}; the limit on a host's memory follows it"),
    "named_environment": (
        7,
        "rows that administrators write stand behind it: they supply the requirements and the choices of the Train "
        "page; `tidepool run` has an option of its own for it",
    ),
    "requirements": (
        9,
        "a submission names what hosts are to prepare for it; events tell what a host installs; the Train page offers "
        "to go on without lines that cannot be used; what ran is locked with their hashes, and so is a training that "
        "runs exactly again",
    ),
}


def names_in(file: Path) -> set[str]:
    """Names that code takes or gives by name: attributes, arguments, fields of classes, and texts that are one name."""
    text = file.read_text()
    if file.suffix != ".py":
        return set(re.findall(r"[.\"'](\w+)\b", text))
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.keyword | ast.arg) and node.arg:
            found.add(node.arg)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found


@pytest.fixture(scope="module")
def files() -> dict[str, list[str]]:
    """Return the files that name each option."""
    found: dict[str, list[str]] = {name: [] for name in OPTIONS}
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*")):
            path = file.relative_to(ROOT).as_posix()
            if file.suffix not in (".py", ".html", ".js") or "/migrations/" in path or path.startswith(NOT_SEARCHED):
                continue
            for name in names_in(file) & OPTIONS.keys():
                if folder in WEB or name not in SHARED_WORDS:
                    found[name].append(path)
    return found


@pytest.mark.parametrize("name", [name for name in OPTIONS if name not in NOT_COUNTED])
def test_few_files_name_an_option(name: str, files: dict[str, list[str]]) -> None:
    most, _ = MORE.get(name, (MOST, ""))
    assert len(files[name]) <= most, f"derive what these do from jobs/options.py: {', '.join(files[name])}"
    assert name not in MORE or len(files[name]) == most, "fewer files name it: lower the number"
