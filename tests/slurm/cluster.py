"""A Slurm of a test's own: munge, a controller and nodes, as processes on this machine."""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.journey.running_stack import free_port
from tests.waiting import wait_until

__all__ = ["Slurm", "running_slurm", "why_impossible"]

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")


@dataclass
class Slurm:
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "SLURM_CONF": str(self.folder / "slurm.conf")}

    def run(self, *command: str, **variables: str) -> str:
        done = subprocess.run(command, env=self.environment | variables, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{command}: {done.stderr}\n{self.story()}"
        return done.stdout

    def submit(self, script: Path, *options: str) -> str:
        """Return the job's number."""
        return self.run("sbatch", "--parsable", f"--output={self.folder}/%j.out", *options, str(script)).strip()

    def state(self, job: str) -> str:
        return self.run("squeue", "--noheader", "--jobs", job, "--states=all", "--format", "%T").strip()

    def end_jobs(self) -> None:
        """Without the daemons, their processes would go on, and disturb the next cluster."""
        self.run("scancel", "--user=root", "--full")
        wait_until(lambda: not self.run("squeue", "--noheader").split(), self.story)

    def story(self) -> str:
        """Return what a failing test wants to see."""
        logs = sorted([*self.folder.glob("*.out"), *self.folder.glob("*.log")])
        return "\n".join(f"--- {log.name}\n{log.read_text()[-2000:]}" for log in logs)


def why_impossible() -> str:
    """Return what is missing; "": nothing."""
    if os.geteuid() != 0:
        return "Slurm's controller and nodes run as root"
    missing = [name for name in _PROGRAMS if not shutil.which(name)]
    return f"{', '.join(missing)} missing: apt-get install slurmctld slurmd slurm-client munge" if missing else ""


@contextmanager
def running_slurm(folder: Path, nodes: int) -> Iterator[Slurm]:
    """Yield a cluster whose nodes are this machine. folder: of its own, with a short name."""
    slurm = Slurm(folder)
    controller, here = free_port(), socket.gethostname()
    ports = ",".join(str(free_port()) for _ in range(nodes))
    (folder / "slurm.conf").write_text(
        f"""
ClusterName=tests
SlurmctldHost={here}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
MpiDefault=none
KillWait=5
ReturnToService=2
NodeName=node[1-{nodes}] NodeHostname={here} NodeAddr=127.0.0.1 Port=[{ports}] CPUs=1 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
    )
    (folder / "state").mkdir()
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o600)
    with ExitStack() as stack:

        def start(name: str, *command: str) -> None:
            with (folder / f"{name}.log").open("ab") as log:
                process = subprocess.Popen(
                    command, env=slurm.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
            stack.callback(process.wait)
            stack.callback(process.send_signal, signal.SIGKILL)

        places = {"--key-file": "munge.key", "--socket": "munge.sock", "--pid-file": "munge.pid"}
        places |= {"--log-file": "munge-own.log", "--seed-file": "munge.seed"}
        options = [f"{option}={folder / name}" for option, name in places.items()]
        start("munge", "munged", "--foreground", "--force", *options)
        wait_until((folder / "munge.sock").exists, slurm.story)
        start("controller", "slurmctld", "-D")
        for name in (f"node{number}" for number in range(1, nodes + 1)):
            start(name, "slurmd", "-D", "-N", name)
        wait_until(
            lambda: slurm.run("sinfo", "--noheader", "--format", "%t %D").split() == ["idle", str(nodes)], slurm.story
        )
        stack.callback(slurm.end_jobs)
        yield slurm
