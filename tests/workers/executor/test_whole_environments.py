"""Scripts in whole environments: started by a parent of the environment's own, or refused in words.

The environments stand built where the executor looks for them, without a download: their packages are the cluster's.
"""

import json
import platform
import sys
import venv
from pathlib import Path

from tidepool.env import site_of

from tests.runtime.process_tree import launch_spec
from tests.waiting import wait_until
from tests.workers.executor.embedded import Host, desired_job
from workers.executor.environments.requirements import digest_of, installed, wanted_of

#: Another version of a package that no layer replaces.
REQUIRED = "typing-extensions<1"
SAYS = "import json, os, sys, time\nopen(sys.argv[1], 'w').write(json.dumps([sys.executable, sys.prefix]))\n"
WAITS = f"{SAYS}while True:\n    time.sleep(0.05)\n"


def built(host: Host) -> Path:
    """Make the environment for `REQUIRED`, without torch, as a build leaves it."""
    wanted = wanted_of([REQUIRED], installed(), platform.python_version())
    assert wanted is not None
    assert wanted.is_whole
    folder = host.config.environments_folder / digest_of(wanted, installed(), platform.python_version())
    venv.create(folder, with_pip=False, symlinks=True)
    (site_of(folder) / "_packages.pth").write_text(str(site_of(Path(sys.prefix))))
    (folder / "complete.json").write_text(
        json.dumps({"requirements": [REQUIRED], "is_whole": True, "python": "3.12.1", "torch": ""})
    )
    return folder


def test_a_script_runs_in_it_from_a_parent_of_its_own(host: Host, tmp_path: Path) -> None:
    folder, said = built(host), tmp_path / "attempt-1" / "said"
    launch = launch_spec(tmp_path, WAITS, requirements=REQUIRED, arguments=[str(said)], engine="fixed", max_slots=1)
    host.send_desired(desired_job(launch, [0], lead=True))
    host.until_running(1)
    assert wait_until(lambda: said.exists() and said.read_text(), host.log)
    # A fork has the prefix of its parent.
    assert json.loads(said.read_text()) == [
        str(tmp_path / ".own" / "python" / "host-a" / "bin" / "python"),
        str(folder),
    ]
    host.send_desired()
    host.until(lambda report: report.applied_revision == 2 and not report.ranks)


def test_an_elastic_script_without_a_tested_torch_fails_in_words(host: Host, tmp_path: Path) -> None:
    built(host)
    launch = launch_spec(tmp_path, SAYS, requirements=REQUIRED)
    host.send_desired(desired_job(launch, [0]))
    [entry] = host.until_told("environment_failed")
    assert entry.data["why"].startswith("an elastic script needs torch<2.16,>=2.10, and the environment that its ")
    assert "has no torch: ask for" in entry.data["why"]
