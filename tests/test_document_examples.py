"""Every example of README.md and docs/ runs in a test, or is skipped for a reason that the test says."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml

from accounts.organization.group_table import parse_group_table
from jobs.actions.requirement_lines import script_block
from tests.documents import all_examples, example
from tests.journey.one_stack.test_document_examples import ON_SITE
from tests.test_architecture import ROOT
from tests.test_docs import names_in

#: Example -> the test that runs it.
RUN_BY = {
    "docs/operator/autoscaling.md#Try it on one machine.1": "tests/journey/test_fleet.py",
    "docs/operator/autoscaling.md#With containers.1": (
        "tests/docker/test_compose.py::test_what_the_operator_is_told_starts_the_autoscaler"
    ),
    "docs/operator/backup-and-restore.md#Back up with SQLite.1": "tests/docker/test_backup.py",
    "docs/operator/backup-and-restore.md#Restore with SQLite.1": "tests/docker/test_backup.py",
    "docs/operator/backup-and-restore.md#Back up with PostgreSQL.1": "tests/docker/test_services.py",
    "docs/operator/backup-and-restore.md#Restore with PostgreSQL.1": "tests/docker/test_services.py",
    "docs/operator/backup-and-restore.md#Restore on a new machine.1": "tests/docker/test_containers.py",
    "docs/operator/install.md#One machine.1": "tests/docker/containers.py",
    "docs/operator/install.md#With Podman.1": "tests/docker/containers.py",
    "docs/operator/join-a-host.md#Join a host.1": "tests/docker/test_containers.py",
    "docs/operator/join-a-host.md#Join a host.2": "tests/docker/test_containers.py",
    "docs/operator/kubernetes.md#Autoscaling.1": "tests/deploy/test_kubernetes.py",
    "docs/operator/mlflow.md#With docker compose.1": "tests/docker/test_containers.py",
    "docs/operator/upgrade.md#The control plane.1": "tests/docker/test_services.py",
    "docs/operator/upgrade.md#The first machine's executor.1": "tests/docker/test_containers.py",
    "docs/operator/upgrade.md#The hosts.1": "tests/docker/test_containers.py",
    "docs/user/adaptdl.md#Scripts written for AdaptDL.1": (
        "tests/runtime/compat/test_adaptdl_parts.py::test_the_snippet_of_the_documentation_trains"
    ),
    "docs/user/adaptdl.md#Off the cluster.1": (
        "tests/webapp/test_wheel_adaptdl.py::test_a_script_trains_with_plain_python"
    ),
    "docs/user/coming-from-wmla.md#Search algorithms of your own.1": (
        "tests/studies/test_plugins.py::test_the_example_of_the_documentation_learns"
    ),
    "docs/user/cli.md#Install and log in.1": "tests/journey/one_stack/test_new_user.py::newcomer",
    "docs/user/cli.md#Train.1": "tests/journey/one_stack/test_new_user.py::test_cli_md_trains",
    "docs/user/cli.md#Train.2": "tests/journey/one_stack/test_new_user.py::test_cli_md_submits_a_file",
    "docs/user/cli.md#Look, change, download.1": "tests/journey/one_stack/test_new_user.py::test_cli_md_completes",
    **{
        f"docs/user/notebook.md#{place}": "tests/journey/one_stack/test_new_user.py::test_notebook_md"
        for place in ("Begin.1", "Begin.2", "Run a cell.1", "Run a cell.2", "Run a cell.3")
    },
    **{
        f"docs/user/own-loop.md#Your own loop.{number}": (
            "tests/runtime/test_examples.py::test_a_loop_of_ones_own_needs_few_changes"
        )
        for number in (1, 2)
    },
    **{
        f"docs/user/studies.md#{place}": f"tests/journey/one_stack/test_studies.py::test_studies_md_in_{where}"
        for place, where in (
            ("Create a study.1", "a_shell"),
            ("Several values by hand.2", "python"),
            ("Follow a study.1", "a_shell"),
            ("From Python.1", "python"),
            ("Several values by hand.1", "a_shell_by_hand"),
        )
    },
    **{
        f"docs/user/nni.md#Searches written for NNI.{number}": (
            "tests/journey/one_stack/test_studies.py::test_nni_md_in_a_shell"
        )
        for number in (1, 2, 3)
    },
    "docs/user/sdk.md#A training from start to end.1": "tests/journey/one_stack/test_new_user.py::test_sdk_md",
}
#: Example -> the reason why no test runs it.
SKIPPED = {
    "docs/user/train.md#Secrets.1": "tests/journey/one_stack/test_secrets.py runs a script that reads its secrets",
    "docs/user/why-slow.md#Time by cause.1": "tests/journey/one_stack runs it as a command of cli.md",
    "docs/user/why-slow.md#Stacks.1": "tests/journey/one_stack runs it as a command of cli.md",
    "docs/user/why-slow.md#Flame graph.1": "tests/journey/one_stack runs it as a command of cli.md",
    "docs/user/why-slow.md#Trace.1": "tests/journey/one_stack runs it as a command of cli.md",
    "docs/operator/autoscaling.md#Try it on one machine.2": "tests/journey/test_fleet.py starts a stack so",
    "README.md#Try it.1": "make demo is manage.py up, which every journey starts; the repository has no address yet",
    "README.md#More than the demo.1": "make setup installs a whole environment; journeys start manage.py up",
    "docs/decisions/0001-native-api.md#0001 The native API yields steps.1": "the interface that was decided against",
    "docs/operator/hosts-and-resource-groups.md#Packages for all trainings.1": "changes the packages of the suite",
    "docs/operator/hosts-and-resource-groups.md#Addresses that trainings do not reach.1": "tests/deploy loads the file",
    "docs/operator/install.md#A web server in front.1": "a part of a web server's own configuration",
    "docs/operator/autoscaling.md#Without containers.1": "needs systemd as the first process",
    "docs/operator/install.md#Isolation of trainings.1": "needs containers; tests/docker reads the file",
    "docs/operator/install.md#Without containers.1": "changes the machine; tests/deploy reads the units",
    "docs/operator/install.md#Without containers.2": "needs systemd as the first process",
    "docs/operator/install.md#Without containers.3": "needs systemd as the first process",
    "docs/operator/install.md#Without containers.4": "needs systemd as the first process",
    "docs/operator/kubernetes.md#Install.1": "needs a cluster; tests/deploy renders the tree from the same secrets",
    "docs/operator/kubernetes.md#Install.2": "needs a cluster",
    "docs/operator/kubernetes.md#Upgrade.1": "needs a cluster",
    "docs/operator/join-a-host.md#Join a host.3": "needs another machine; tests/hosts joins hosts of its own",
    "docs/operator/several-hosts.md#A range of ports.1": "changes the kernel; tests/hosts/test_ports.py does so",
    "docs/operator/mlflow.md#MLflow on the site.1": "installs MLflow; tests/journey/test_mlflow.py starts it",
    "docs/operator/mlflow.md#On a host name of its own.1": "a line of settings without a command",
    "docs/operator/slurm.md#The batch script.1": "a batch script; tests/slurm submits one to a Slurm of its own",
    "docs/operator/wmla-ports.md#Ports for clients of WMLA.1": "tests/journey/test_wmla_ports.py starts the stack so",
    "docs/operator/wmla-ports.md#Ports for clients of WMLA.2": "tests/journey/test_wmla_ports.py asks so",
    "docs/user/coming-from-wmla.md#The command line.1": "a conversation with a password, at WMLA's ports",
    "docs/user/studies.md#In Optuna.1": "needs a database server; tests/studies/test_copying.py opens copies so",
    "docs/user/mlflow.md#From your laptop.1": "needs MLflow; tests/journey/test_mlflow.py has it",
    "docs/user/notebook.md#Run a cell.4": "draws by matplotlib, which Tidepool does not require",
    "docs/user/tutorial.md#Before you begin.1": "starts a stack in the foreground, as every journey does",
    "docs/user/tutorial.md#Before you begin.2": "needs CIFAR-10, which is not in the repository",
}
_LOOP = """
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset
from tidepool.torch import Session, add_up, epochs, prepare, totals, weigh

data = TensorDataset(torch.randn(24, 4), torch.randint(0, 3, (24,)))
loader, model = DataLoader(data, batch_size=8), nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
#: Example in Python -> the lines before and after it, run off the cluster by a Python of its own.
PROGRAMS = {
    "README.md#Why Tidepool.1": (
        _LOOP + "scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)\n",
        "        loss = cross_entropy(model(inputs), targets)\n        optimizer.zero_grad()\n"
        "        loss.backward()\n        optimizer.step()\n    scheduler.step()\n",
    ),
    "docs/decisions/0001-native-api.md#0001 The native API yields steps.2": (
        _LOOP
        + "session, train_set, loss_fn = Session(model, optimizer, effective_batch_size=8), data, cross_entropy\n",
        "",
    ),
    "docs/user/alerts.md#What a webhook receives.2": (
        "",
        'body, secret, at = b"{}", "s", str(int(time.time()))\n'
        'words = hmac.new(b"s", at.encode() + b"." + body, hashlib.sha256).hexdigest()\n'
        'headers = {"X-Tidepool-Timestamp": at, "X-Tidepool-Signature": f"sha256={words}"}\n'
        'assert is_genuine(headers, body, secret) and not is_genuine(headers, b"[]", secret)\n',
    ),
    "docs/user/coming-from-wmla.md#A notebook.1": ("", 'assert hostname and login[0] == "alice"\n'),
    "docs/user/own-loop.md#Several DataLoaders at once.1": (
        _LOOP + "unlabelled = DataLoader(TensorDataset(torch.randn(24, 4)), batch_size=8)\n"
        "def consistency(model, free):\n    return model(free[0]).square().mean()\n",
        "        optimizer.step()\n        optimizer.zero_grad()\n",
    ),
    "docs/user/own-loop.md#Numbers that all processes need.1": (
        _LOOP + "scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)\n"
        "loader, model, optimizer, scheduler = prepare(loader, model, optimizer, scheduler)\n",
        "",
    ),
}
#: Code that an ellipsis in an example of Python stands for.
ELLIPSES = {
    "docs/user/own-loop.md#Numbers that all processes need.1": (
        "loss = cross_entropy(model(inputs), labels); loss.backward(); optimizer.step(); optimizer.zero_grad()"
    ),
}


class _Keys(HTMLParser):
    """Collects the values of data-key."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if name == "data-key" and value]


def keys_in(text: str) -> list[str]:
    parser = _Keys()
    parser.feed(text)
    return parser.found


#: Examples of data -> what reads them.
DATA: dict[str, Callable[[str], object]] = {
    "docs/operator/autoscaling.md#Fleets.1": tomllib.loads,
    "docs/operator/autoscaling.md#The command.1": json.loads,
    "docs/operator/log-in.md#Set it up.1": yaml.safe_load,
    "docs/operator/log-in.md#The table of groups.1": parse_group_table,
    "docs/operator/monitor.md#Monitor.1": yaml.safe_load,
    "docs/user/alerts.md#What a webhook receives.1": json.loads,
    "docs/user/keyboard.md#Keyboard shortcuts.1": keys_in,
    "docs/user/scripts.md#Packages that the cluster does not have.1": script_block,
}
IDS = [each.id for each in all_examples()]


def test_every_example_has_a_way_and_no_way_is_without_an_example() -> None:
    ways = [*RUN_BY, *SKIPPED, *PROGRAMS, *DATA, *ON_SITE]
    assert sorted(ways) == sorted(IDS)
    assert len(SKIPPED) < len(IDS) / 2


@pytest.mark.parametrize("name", [each for each in IDS if each not in ON_SITE])
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    """Examples of ON_SITE run in a journey, on a stack."""
    if name in SKIPPED:
        pytest.skip(SKIPPED[name])
    if name in RUN_BY:
        file, _, test = RUN_BY[name].partition("::")
        assert not test or test in names_in(file)
        page = Path(name.partition("#")[0]).name
        assert page in (ROOT / file).read_text(), f"{file} no longer reads {page}"
    elif name in DATA:
        assert DATA[name](example(name).text)
    else:
        before, after = PROGRAMS[name]
        text = example(name).text.replace("...", ELLIPSES.get(name, "pass"))
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "runtime"), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", f"{before}\n{text}\n{after}"]
        ended = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert ended.returncode == 0, ended.stderr
