"""The filter of packets for trainings that are users of their own, in a network namespace with such addresses."""

import json
import os
import shutil
import subprocess
import sys
from typing import Final

import pytest

from tests.docker.compose import EXECUTOR, ROOT, load
from tests.docker.test_compose import GIVEN
from tests.missing import leave_out

FILE: Final = ROOT / "deploy/nftables/trainings.nft"
#: Users of the machine, and of trainings by the ranges of docker/executor.yml and of the unit for systemd.
SERVICE, TRAINING = 1000, 2_100_000_007
#: Listens at addresses of a network of its own, loads the file, and tells which of them each user reaches.
SCRIPT: Final = """
import json, os, socket, subprocess, sys

def run(*words):
    subprocess.run(words, check=True)

def error(user, address, port):
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setresuid(user, user, user)
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family) as client:
            client.settimeout(20)
            os.write(writing, str(client.connect_ex((address, port))).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        return os.strerror(int(told.read()))

file, *users = sys.argv[1:]
run("ip", "link", "set", "lo", "up")
places = [("169.254.169.254", 80), ("169.254.169.254", 53), ("fd00:ec2::254", 80), ("198.51.100.7", 80)]
listening = []
for address in dict.fromkeys(address for address, _ in places):
    is_new = ":" in address
    run("ip", "address", "add", f"{address}/{128 if is_new else 32}", "dev", "lo", *["nodad"] * is_new)
for address, port in places:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listening.append(socket.create_server((address, port), family=family))
for _ in range(2):  # loading it again changes nothing
    run("nft", "-f", file)
print(json.dumps([[error(int(user), *place) for place in places] for user in users]))
"""


def test_trainings_do_not_reach_what_gives_away_the_machines_credentials() -> None:
    if os.getuid() != 0 or not (shutil.which("nft") and shutil.which("unshare") and shutil.which("ip")):
        leave_out("nft filters packets as root, and this machine lacks it")
    words = ["unshare", "--net", sys.executable, "-c", SCRIPT, str(FILE), str(SERVICE), str(TRAINING)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    if "Operation not supported" in done.stderr:
        pytest.skip("this kernel has no nftables")
    assert done.returncode == 0, done.stderr
    service, training = json.loads(done.stdout)
    assert service == ["Success"] * 4
    assert training == ["No route to host", "Success", "Permission denied", "Success"]


def test_its_numbers_are_those_of_the_executors() -> None:
    numbers = load(EXECUTOR, GIVEN)["services"]["executor"]["environment"]["TIDEPOOL_USER_IDS"]
    assert f"meta skuid != {numbers} accept" in FILE.read_text()
