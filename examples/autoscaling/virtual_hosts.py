"""Command of a fleet of virtual hosts on this machine, beside those of `manage.py up`: for trying the autoscaler out.

`up` starts the autoscaler with TIDEPOOL_HOME and the broker's address, which this command hands on. Each host has a
keeper, which ends with the stack, and ends the host.

    [[fleets]]
    name = "virtual"
    resource_groups = ["ComputeHostsGPU"]
    slots = 2
    most = 2
    kind = "virtual GPU (CPU)"
    command = [".venv/bin/python", "examples/autoscaling/virtual_hosts.py"]
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
HOME = Path(os.environ["TIDEPOOL_HOME"])
KEEPERS = HOME / "run" / "fleet"


def start(request: dict[str, Any]) -> int:
    names = [f"{request['fleet']}-{request['change']}-{number}" for number in range(1, request["count"] + 1)]
    subprocess.run([sys.executable, "manage.py", "enroll_host", *names], cwd=CHECKOUT, stdout=sys.stderr, check=True)
    KEEPERS.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in names:
        with (HOME / "logs" / f"{name}.log").open("ab") as log:
            keeper = subprocess.Popen(
                [sys.executable, __file__, "keep", name, str(request["slots"]), request["fleet"]],
                cwd=CHECKOUT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        (KEEPERS / name).write_text(str(keeper.pid))
    return len(names)


def stop(request: dict[str, Any]) -> int:
    for name in request["hosts"]:
        file = KEEPERS / name
        if file.exists():
            with suppress(ProcessLookupError):
                os.kill(int(file.read_text()), signal.SIGTERM)
            file.unlink()
    return len(request["hosts"])


def keep(name: str, slots: str, fleet: str) -> None:
    """Run an executor until this process gets SIGTERM, or the stack of this home has ended."""
    from workers.executor.join import executor_command

    lifeline, held_open = os.pipe()  # everything on the host ends once this process has ended
    kept = {key: value for key, value in os.environ.items() if not key.startswith("TIDEPOOL_DATABASE")}
    environment = kept | {
        "TIDEPOOL_HOST_NAME": name, "TIDEPOOL_VIRTUAL_SLOTS": slots, "TIDEPOOL_FLEET": fleet,
        "TIDEPOOL_ADDRESS": "127.0.0.1", "TIDEPOOL_LIFELINE_FD": str(lifeline),
    }  # fmt: skip
    executor = subprocess.Popen(executor_command(name), env=environment, pass_fds=(lifeline,))

    def leave(number: int, frame: FrameType | None) -> None:
        executor.terminate()

    signal.signal(signal.SIGTERM, leave)
    with (HOME / "run" / "up.lock").open() as lock:
        while executor.poll() is None:
            time.sleep(0.5)
            if stack_has_ended(lock.fileno()):
                executor.kill()
    os.close(held_open)


def stack_has_ended(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


if __name__ == "__main__":
    if sys.argv[1:2] == ["keep"]:
        sys.path.insert(0, str(CHECKOUT))
        keep(*sys.argv[2:])
    else:
        wish = json.load(sys.stdin)
        count = start(wish) if wish["action"] == "start" else stop(wish)
        print(json.dumps({"count": count}))
