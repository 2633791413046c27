"""Self-test of this host's GPUs by torch: `tidepool.torch.device_check`, run in a process of its own.

A process that has touched CUDA cannot be forked for ranks, and a driver that hangs must not hold the executor up.
"""

import subprocess
import sys
from collections.abc import Mapping, Sequence

import msgspec
from tidepool.device_report import DeviceReport

__all__ = ["SELF_TEST_SECONDS", "self_test"]

#: Longest duration of the test; loading torch and CUDA for eight GPUs takes a few seconds.
SELF_TEST_SECONDS = 120.0
_COMMAND = (sys.executable, "-P", "-m", "tidepool.torch.device_check")


def self_test(
    environment: Mapping[str, str], command: Sequence[str] = _COMMAND, seconds: float = SELF_TEST_SECONDS
) -> DeviceReport:
    """Return the report of the test. Its `error` says why there is none."""
    try:
        done = subprocess.run(
            command, env=dict(environment), capture_output=True, timeout=seconds, check=False, cwd="/"
        )
    except subprocess.TimeoutExpired:
        return DeviceReport(error=f"the self-test of torch has not ended within {seconds:.0f} s: the driver may hang")
    except OSError as error:
        return DeviceReport(error=f"the self-test of torch could not be started: {error}")
    try:
        return msgspec.json.decode(done.stdout.splitlines()[-1], type=DeviceReport)
    except (IndexError, msgspec.DecodeError):
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        return DeviceReport(error=f"the self-test of torch failed: {last[0][:300]}")
