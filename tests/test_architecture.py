"""ARCHITECTURE.md's rules, checked in the source: imports, reads of the environment, lengths of files."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from django.urls import URLResolver, get_resolver

ROOT = Path(__file__).resolve().parent.parent
MAX_LINES = 500
#: A program that people download has to be one file.
ONE_FILE = "wmla/dlicmd.py"
APPS = (
    *("core", "accounts", "datasets", "models_registry", "workers", "jobs", "usage", "insights", "reports", "replay"),
    *("studies", "capacity", "wmla", "tracking", "alerts", "webapp"),
)

#: Layers of apps, lowest first. An app imports apps of lower layers only.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("tidepool",),
    ("scheduling",),
    ("core",),
    ("accounts",),
    ("datasets", "models_registry", "workers"),
    ("jobs",),
    ("usage",),
    ("insights",),
    ("replay", "studies", "capacity"),
    ("reports",),
    ("wmla", "tracking", "alerts"),
    ("webapp",),
)
#: Layers within jobs/, by the second part of a module's name.
JOBS_LAYERS: tuple[tuple[str, ...], ...] = (
    ("states", "words", "tags", "gpu_time", "gpu_weights", "topics"),
    ("permissions", "messages"),
    ("option", "option_words"),
    ("options",),
    ("models",),
    ("files",),
    ("queries",),
    ("control",),
    ("actions",),
    ("pages", "api"),
    ("templatetags",),
    ("apps", "background", "tasks", "management"),
)
#: Layers within scheduling/: the steps of a cycle in order, and above them previews and other questions.
SCHEDULING_LAYERS: tuple[tuple[str, ...], ...] = (
    ("snapshot",),
    ("plan", "one_kind"),
    ("policies",),
    ("sharing",),
    ("placement", "forecast"),
    ("host_shares",),
    ("explain",),
    ("schedule",),
    ("preparation", "preview", "sharing_report"),
    ("remedies", "replay", "capacity"),
)
#: Layers within tidepool.torch. A rank and its coordinator share only names of files and the patience of heartbeats.
TORCH_LAYERS: tuple[tuple[str, ...], ...] = (
    ("coordination", "state"),
    ("data", "device_check", "warm_parent"),
    ("comm",),
    ("adaptive",),
    ("rank",),
)
#: Package -> layers of its direct children; "": the top level.
LAYERS_OF = {"": LAYERS, "jobs": JOBS_LAYERS, "scheduling": SCHEDULING_LAYERS, "tidepool.torch": TORCH_LAYERS}

#: Our own packages by their folder on the import path.
PACKAGES = {
    ROOT: (*APPS, "scheduling"),
    ROOT / "runtime": ("tidepool",),
    ROOT / "runtime/compat/wmla": (
        *("_wmla", "callbacks", "edtcallback", "elog", "emetrics", "fabric_model", "monitor_pth", "pth_parameter_mgr"),
        *("inference_helper", "monitor_tf", "pyedt", "redhareapi", "tf_parameter_mgr"),
    ),
    ROOT / "runtime/compat/adaptdl": ("adaptdl",),
    ROOT / "runtime/compat/wmla_plugins": ("plugins",),
    ROOT / "runtime/compat/nni": ("nni",),
}
OUR_NAMES = {name for names in PACKAGES.values() for name in names}

#: The modules that read settings from the environment: one for the web part, the executor, a rank, and the client.
READS_ENVIRONMENT = {
    *("webapp/settings.py", "workers/executor/config.py", "workers/executor/environments/engines.py"),
    *("runtime/tidepool/env.py", "runtime/tidepool/client/config.py"),
}
#: Modules that only make the environment of other processes.
HANDS_ENVIRONMENT_ON = {
    "webapp/embedded/process_specs.py": "to the children of `up`",
    "webapp/embedded/forked.py": "to a fork of `up`, as process_specs.py makes it",
    "workers/executor/join.py": "to the executor that it becomes",
    "workers/executor/pilot.py": "to the executor that it starts, with what the batch system says",
    "workers/executor/forkserver.py": "what is allowed of it, to the forkserver",
    "runtime/tidepool/rank_process.py": "what is allowed of it, to a rank",
    "tracking/management/commands/serve_mlflow.py": "what is needed of it, to MLflow's server",
    "alerts/background.py": "without a proxy, to its own libraries",
    "tracking/server/bridge.py": "to MLflow, in whose process it runs",
    "runtime/tidepool/client/source.py": "to git",
    "runtime/tidepool/procfs.py": "the mark by which leftovers are found",
}
#: Entry points that only set a default for Django.
SETS_DJANGO_DEFAULT = {"manage.py", "webapp/asgi.py", "webapp/celery.py"}


#: Modules that the scheduler shares with the runtime: formulas, and no fit.
GOODPUT = ("tidepool.goodput.curve", "tidepool.goodput.model")


def source_files() -> list[Path]:
    files = [ROOT / "manage.py"]
    for root, names in PACKAGES.items():
        for name in names:
            files += [root / f"{name}.py"] if (root / f"{name}.py").exists() else sorted((root / name).rglob("*.py"))
    return [file for file in files if "__pycache__" not in file.parts]


def relative(file: Path) -> str:
    return str(file.relative_to(ROOT))


def files_below(*folders: str) -> list[Path]:
    return [file for file in source_files() if any(relative(file).startswith(folder) for folder in folders)]


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(), str(file))


def imports_of(file: Path) -> set[str]:
    """Full dotted names of the imported modules; `from a import b` gives both `a` and `a.b`."""
    found: set[str] = set()
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{relative(file)}: import by full names"
            assert node.module is not None
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def top_names(file: Path) -> set[str]:
    return {name.partition(".")[0] for name in imports_of(file)}


def outside_standard_library(file: Path) -> set[str]:
    return {name for name in top_names(file) if name not in sys.stdlib_module_names}


def offenders(files: list[Path], allowed: set[str]) -> dict[str, set[str]]:
    assert files, "the rule covers no file: it has moved"
    found = {relative(file): outside_standard_library(file) - allowed for file in files}
    return {file: names for file, names in found.items() if names}


def layer_of(name: str | None, layers: tuple[tuple[str, ...], ...]) -> int | None:
    return next((number for number, children in enumerate(layers) if name in children), None)


def module_name(file: Path) -> str:
    package = next(root for root in sorted(PACKAGES, key=lambda root: -len(root.parts)) if file.is_relative_to(root))
    return ".".join(file.relative_to(package).with_suffix("").parts).removesuffix(".__init__")


def child_package(name: str, package: str) -> str | None:
    """Return the direct child of `package` that contains the module; None for other modules and `package` itself."""
    prefix = f"{package}." if package else ""
    return name.removeprefix(prefix).partition(".")[0] if name.startswith(prefix) else None


def upward_imports() -> set[tuple[str, str]]:
    """Return (importing module, imported name) of each import from a higher layer, or across the same layer."""
    found = set()
    for file in source_files():
        importer = module_name(file)
        for imported in imports_of(file):
            for package, layers in LAYERS_OF.items():
                children = child_package(importer, package), child_package(imported, package)
                here, there = (layer_of(child, layers) for child in children)
                if children[0] != children[1] and here is not None and there is not None and there >= here:
                    found.add((importer, imported))
    return found


def test_no_import_goes_up() -> None:
    assert upward_imports() == set()


def test_every_package_has_a_layer() -> None:
    children = {file.relative_to(ROOT).parts[0] for file in source_files()} - {"runtime", "manage.py"}
    assert children == {child for layer in LAYERS for child in layer} - {"tidepool"}
    names = {module_name(file) for file in source_files()}
    for package in ("jobs", "scheduling", "tidepool.torch"):
        parts = {child_package(name, package) for name in names} - {None, "migrations"}
        assert parts == {child for layer in LAYERS_OF[package] for child in layer}, package


def test_no_circle_of_imports() -> None:
    graph = {module_name(file): imports_of(file) for file in source_files()}
    graph = {
        name: {other for other in imported if other in graph and other != name} for name, imported in graph.items()
    }
    while leaves := {name for name, imported in graph.items() if not imported & graph.keys()}:
        graph = {name: imported for name, imported in graph.items() if name not in leaves}
    # The remaining modules form a cycle or import one: strip those that no other imports.
    while heads := graph.keys() - set().union(*graph.values()):
        graph = {name: imported for name, imported in graph.items() if name not in heads}
    assert {name: sorted(imported & graph.keys()) for name, imported in graph.items()} == {}


def test_scheduling_is_pure() -> None:
    files = files_below("scheduling/")
    assert offenders(files, {"numpy", "scipy", "scheduling", "tidepool"}) == {}
    of_the_runtime = {(relative(file), name) for file in files for name in imports_of(file) if "tidepool." in name}
    # Only the simulator fits: in it trainings do what their ranks do elsewhere.
    assert {(file, name) for file, name in of_the_runtime if not name.startswith(GOODPUT)} == {
        ("scheduling/replay/measuring.py", "tidepool.goodput.fit"),
        ("scheduling/replay/measuring.py", "tidepool.goodput.fit.fit"),
    }
    impure = {"time", "random", "secrets", "logging", "os", "socket", "subprocess", "threading", "uuid"}
    assert {relative(file): sorted(top_names(file) & impure) for file in files if top_names(file) & impure} == {}


def test_executor_knows_neither_django_nor_torch() -> None:
    files = files_below("workers/executor/")
    assert (
        offenders(
            files,
            {
                "celery",
                "cryptography",
                "kombu",
                "msgspec",
                "packaging",
                "psutil",
                "pynvml",
                "re2",
                "tidepool",
                "uv",
                "workers",
            },
        )
        == {}
    )
    for file in files:
        ours = {name for name in imports_of(file) if name.startswith("workers")}
        assert all(name.startswith("workers.executor") for name in ours), relative(file)
        assert not any(name.startswith("tidepool.torch") for name in imports_of(file)), relative(file)


def test_runtime_stands_alone() -> None:
    small_libraries = {"msgspec", "numpy", "safetensors", "tidepool"}
    torch_files = files_below("runtime/tidepool/torch/")
    client_files = files_below("runtime/tidepool/client/", "runtime/tidepool/cli/", "runtime/tidepool/notebook/")
    goodput_files = files_below("runtime/tidepool/goodput/")
    others = [*torch_files, *client_files, *goodput_files]
    plain_files = [file for file in files_below("runtime/tidepool/") if file not in others]
    assert offenders(client_files, {"IPython", "click", "cloudpickle", "pandas", "rich", "tidepool", "yaml"}) == {}
    assert {relative(file) for file in client_files if "IPython" in top_names(file)} == {
        "runtime/tidepool/notebook/magics.py"
    }
    assert offenders(torch_files, small_libraries | {"torch"}) == {}
    assert offenders(goodput_files, {"numpy", "scipy", "tidepool"}) == {}
    assert [relative(file) for file in goodput_files if "scipy" in top_names(file)] == [
        "runtime/tidepool/goodput/fit.py"
    ]
    assert offenders(plain_files, small_libraries | {"cloudpickle", "psutil", "setproctitle"}) == {}


def test_the_client_is_separate() -> None:
    """The client imports nothing else of the runtime, and the training code does not import the client."""
    children = tuple(f"tidepool.{child}" for child in ("client", "cli", "distributor", "notebook", "stand_ins"))
    for file in files_below("runtime/tidepool/"):
        ours = {name for name in imports_of(file) if name.startswith("tidepool.")}
        if module_name(file).startswith(children):
            shared = ("version", "units", "function_payload", "notebook_cells", "requirement_files", "script_modules")
            shared += ("source_privacy", "space_notation", "terminal_text")
            assert all(name.startswith((*children, *(f"tidepool.{one}" for one in shared))) for name in ours), relative(
                file
            )
        elif module_name(file) not in ("tidepool", "tidepool.__main__"):
            # A rank offers what stands in for pyspark to scripts that name it.
            assert not any(name.startswith(children) for name in ours - {"tidepool.stand_ins"}), relative(file)


def test_only_the_users_own_processes_unpickle() -> None:
    """A pickle runs what its author wants: in the ranks it is the user's, and the client loads the user's values."""
    loading = {
        *(
            "runtime/tidepool/torch/comm/child.py",
            "runtime/tidepool/function_runner.py",
            "runtime/tidepool/client/calls.py",
            "runtime/tidepool/client/values.py",
        ),
        *("runtime/tidepool/notebook_cells.py", "runtime/tidepool/notebook/names.py"),
        # The state of a user's search algorithm, in a training of that user.
        "runtime/tidepool/search_plugin_runner.py",
        # Writes torch's own record of a full GPU.
        "runtime/tidepool/torch/rank/gpu_shortages.py",
        # Catches what torch raises of it.
        "runtime/tidepool/torch/state/initial_weights.py",
        *(f"runtime/compat/adaptdl/adaptdl/{name}.py" for name in ("_training", "torch/accumulator")),
    }
    picklers = {"pickle", "cloudpickle", "dill", "shelve", "joblib", "marshal"}
    assert {relative(file) for file in source_files() if top_names(file) & picklers} == loading


def test_compatibility_modules_import_only_the_runtime() -> None:
    files = files_below("runtime/compat/")
    assert (
        offenders(files, {"tidepool", "torch", "numpy", "_wmla", "adaptdl", "nni"} | {file.stem for file in files})
        == {}
    )


def test_importing_the_runtime_does_not_load_torch() -> None:
    code = "import sys, tidepool; sys.exit('http.client' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300, cwd=ROOT / "runtime")
    code = "import sys, tidepool, tidepool.protocol, tidepool.env; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300, cwd=ROOT / "runtime")


def test_an_executor_does_not_load_django_whatever_its_environment_names() -> None:
    code = "import sys; from workers.executor.app import app; app.loader.init_worker(); "
    code += "sys.exit('django.db' in sys.modules)"
    executor = {"TIDEPOOL_BROKER_URL": "redis://127.0.0.1:9/0", "TIDEPOOL_HOST_NAME": "a"}
    environment = os.environ | executor | {"DJANGO_SETTINGS_MODULE": "webapp.settings"}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300, cwd=ROOT, env=environment)


def test_apps_have_nothing_but_a_docstring_in_their_package_files() -> None:
    for app in ("jobs", "workers"):
        body = tree_of(ROOT / app / "__init__.py").body
        assert all(isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) for node in body), app


def test_few_modules_read_the_environment() -> None:
    readers = set()
    for file in source_files():
        for node in ast.walk(tree_of(file)):
            if isinstance(node, ast.Attribute) and node.attr in {"environ", "environb", "getenv", "putenv"}:
                readers.add(relative(file))
    assert readers == READS_ENVIRONMENT | set(HANDS_ENVIRONMENT_ON) | SETS_DJANGO_DEFAULT


def test_entry_points_only_set_django_default() -> None:
    for name in sorted(SETS_DJANGO_DEFAULT):
        uses = [line for line in (ROOT / name).read_text().splitlines() if "environ" in line]
        assert [use.strip() for use in uses] == ['os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")']


def test_one_door_to_the_executors() -> None:
    """Only dispatch sends `executor.sync`; only tasks of jobs receive reports."""
    files = files_below(*(f"{app}/" for app in APPS))
    senders = {relative(file) for file in files if "task_message(" in file.read_text()}
    assert senders == {"jobs/control/dispatch.py", "core/task_messages.py"}


def writes_state(node: ast.AST) -> bool:
    """`row.state = ...` or `rows.update(state=...)`."""
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Attribute) and target.attr == "state" for target in node.targets)
    is_update = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "update"
    return is_update and any(keyword.arg == "state" for keyword in node.keywords)


def test_states_change_only_in_actions() -> None:
    """Only actions and the control of jobs write the state of a job or host."""
    writers = {
        relative(file)
        for file in files_below(*(f"{app}/" for app in APPS))
        if any(writes_state(node) for node in ast.walk(tree_of(file)))
    }
    strangers = {
        name
        for name in writers
        if not re.match(r"\w+/(actions|control)", name) and not name.startswith("workers/executor/")
    }
    assert strangers == set()


def test_templates_ask_for_roles_by_the_context_processor_alone() -> None:
    templates = (ROOT / "templates").rglob("*.html")
    assert {relative(file) for file in templates if "is_staff" in file.read_text()} == set()


def test_no_file_is_longer_than_it_may_be() -> None:
    too_long = {
        relative(file): lines
        for file in [*source_files(), *(ROOT / "tests").rglob("*.py")]
        if "migrations" not in file.parts
        and relative(file) != ONE_FILE
        and (lines := len(file.read_text().splitlines())) > MAX_LINES
    }
    assert too_long == {}


def test_every_test_folder_is_a_package() -> None:
    """Otherwise tests/datasets would shadow the app of that name."""
    folders = {file.parent for file in (ROOT / "tests").rglob("test_*.py")}
    assert [relative(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_importing_all_pages_does_not_load_what_fits_curves() -> None:
    """Each process of the web would wait for it, and keep it."""
    code = "import django; django.setup(); import webapp.urls, sys; sys.exit('scipy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300, cwd=ROOT)


def views_by_name(patterns: Iterable[Any], namespace: str = "") -> Iterator[tuple[str, str]]:
    """Yield (full name of an address, module of its view) for each named address below these patterns."""
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            inner = f"{namespace}{pattern.namespace}:" if pattern.namespace else namespace
            yield from views_by_name(pattern.url_patterns, inner)
        elif pattern.name:
            view = pattern.callback
            yield namespace + pattern.name, getattr(view, "cls", getattr(view, "view_class", view)).__module__


def test_no_import_goes_up_by_the_name_of_an_address() -> None:
    """A string such as "jobs:detail" is an import in disguise: it names an address of the same app or a lower layer."""
    module_of = dict(views_by_name(get_resolver().url_patterns))
    assert module_of["jobs:detail"] == "jobs.pages.job.views"
    upward = set()
    for file in files_below(*(f"{app}/" for app in APPS)):
        here = layer_of(module_name(file).partition(".")[0], LAYERS)
        for node in ast.walk(tree_of(file)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and ":" in node.value:
                there = layer_of(module_of.get(node.value, "").partition(".")[0], LAYERS)
                if here is not None and there is not None and there > here:
                    upward.add((module_name(file), node.value))
    assert upward == set()
