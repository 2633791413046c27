"""CPUs near the GPUs of a host, by a fake driver and a folder as the kernel has it."""

import json
from pathlib import Path

import pytest

from tests.workers.executor.devices.fake_driver import FakeDriver

ASK = """
import json, sys
from pathlib import Path
from workers.executor.devices.near_cpus import near_cpus
print(json.dumps(near_cpus(sys.argv[2:], Path(sys.argv[1]))))
"""


@pytest.fixture
def devices(tmp_path: Path) -> Path:
    """Two GPUs on two nodes, and one whose node is not known."""
    for place, node, cpus in (("3b:00.0", 0, "0-31,64-95"), ("d8:00.0", 1, "32-63,96-127"), ("af:00.0", -1, "0-127")):
        folder = tmp_path / "devices" / f"0000:{place}"
        folder.mkdir(parents=True)
        (folder / "numa_node").write_text(f"{node}\n")
        (folder / "local_cpulist").write_text(f"{cpus}\n")
    return tmp_path / "devices"


def near(driver: FakeDriver, devices: Path, *uuids: str) -> list[str]:
    done = driver.run("-c", ASK, str(devices), *uuids)
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found


def test_each_gpu_has_the_cpus_of_its_node(driver: FakeDriver, devices: Path) -> None:
    driver.set(count=2, gpu0_pci="00000000:3B:00.0", gpu1_pci="00000000:D8:00.0")
    assert near(driver, devices, "GPU-1", "GPU-0") == ["32-63,96-127", "0-31,64-95"]


def test_an_instance_has_those_of_its_board(driver: FakeDriver, devices: Path) -> None:
    driver.set(count=1, gpu0_mig=1, gpu0_instances=2, gpu0_pci="00000000:D8:00.0")
    assert near(driver, devices, "MIG-0-1") == ["32-63,96-127"]


def test_what_is_not_known_is_empty(driver: FakeDriver, devices: Path) -> None:
    driver.set(count=3, gpu0_pci="00000000:AF:00.0", gpu1_pci="00000000:01:00.0")
    assert near(driver, devices, "GPU-0", "GPU-1", "GPU-2", "GPU-gone") == [""] * 4
    driver.set(init=9)
    assert near(driver, devices, "GPU-0") == [""]
    assert near(driver, devices) == []
