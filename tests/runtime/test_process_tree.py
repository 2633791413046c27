"""Shims and ranks, by real processes: what starts, what is recorded, what ends."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import msgspec
import psutil
import pytest
from tidepool import json_sockets, procfs
from tidepool.protocol import ShimSpec
from tidepool.shim import RESTART_LIMIT

from tests.runtime.process_tree import JobReconciler, launch_spec, running_forkserver
from tests.waiting import wait_until
from workers.executor.forkserver import Forkserver, ForkserverError

Keep = Callable[..., JobReconciler]

TRAIN_FOREVER = "import time\nprint('training')\nwhile True:\n    time.sleep(0.05)\n"


@pytest.fixture
def keep(warm_forkserver: Forkserver, tmp_path: Path) -> Iterator[Keep]:
    jobs: list[JobReconciler] = []

    def start(script: str, **changes: object) -> JobReconciler:
        jobs.append(JobReconciler(warm_forkserver, tmp_path, script, **changes))
        return jobs[-1]

    yield start
    for job in jobs:
        job.close()


def test_starts_a_rank_in_each_wanted_slot(keep: Keep) -> None:
    job = keep(TRAIN_FOREVER)
    job.desired([0, 2])
    ranks = job.until_ranks(lambda ranks: [rank.state for rank in ranks] == ["RUNNING", "RUNNING"])
    assert [rank.slot for rank in ranks] == [0, 2]
    assert len({rank.pid for rank in ranks}) == 2
    started = job.records("rank_started")
    assert [(record["member_id"], record["pid"]) for record in started] == [
        (rank.member_id, rank.pid) for rank in ranks
    ]


BROKEN = [
    ("import tidepool.torch\ntidepool.torch.prepare(1)\n", 1, "Refusal", "give tidepool.torch.prepare the DataLoader"),
    ("def f(:\n", 1, "SyntaxError", "train.py"),
    ("import no_such_module\n", 1, "ModuleNotFoundError", "no_such_module"),
    ("def f():\n    raise ValueError('bad input')\nf()\n", 1, "ValueError", "in f"),
    ("import sys\nsys.exit(3)\n", 3, "SystemExit", "sys.exit(3)"),
    ("raise SystemExit('no data')\n", 1, "SystemExit", "no data"),
    ("import os, sys\nprint('disk is full', file=sys.stderr, flush=True)\nos._exit(4)\n", 4, "Exit", "disk is full"),
    ("import argparse\nargparse.ArgumentParser().parse_args(['--hiden'])\n", 2, "UsageError", "arguments: --hiden"),
]


@pytest.mark.parametrize(("script", "code", "kind", "shown"), BROKEN)
def test_records_why_a_script_broke(keep: Keep, script: str, code: int, kind: str, shown: str) -> None:
    job = keep(script)
    job.desired([0])
    [exited] = job.until_records("rank_exited", 1)
    assert (exited["code"], exited["signal"], exited["error"]["kind"]) == (code, None, kind)
    assert shown in exited["error"]["traceback"]
    assert "runpy" not in exited["error"]["traceback"]
    if kind not in ("SystemExit", "Exit", "UsageError"):
        assert exited["error"]["traceback"] in job.log(exited["member_id"], "stderr")


def test_says_with_which_code_a_script_exited(keep: Keep) -> None:
    job = keep("import sys\nsys.exit(3)\n")
    job.desired([0])
    [exited] = job.until_records("rank_exited", 1)
    assert exited["error"]["message"] == "the script exited with code 3"


@pytest.mark.parametrize(
    ("metrics", "step"),
    [('{"step":4}\n{"step":5}\n{"st', 5), ("", None), ("[5]\n", None), ('{"step":"5"}\n', None), ("5 of 9\n", None)],
)
def test_an_end_tells_the_steps_that_its_attempt_has_recorded(keep: Keep, metrics: str, step: int | None) -> None:
    job = keep(f"import os\nopen('../attempt-1/metrics.jsonl', 'w').write({metrics!r})\nos._exit(3)\n")
    job.desired([0])
    [exited] = job.until_records("rank_exited", 1)
    assert (exited["code"], exited["step"]) == (3, step)


def test_a_crash_is_the_scripts_doing_and_shows_where_it_happened(keep: Keep) -> None:
    job = keep("import ctypes\ndef f():\n    ctypes.string_at(0)\nf()\n")
    job.desired([0])
    [exited] = job.until_records("rank_exited", 1)
    assert (exited["code"], exited["signal"], exited["by_script"]) == (None, signal.SIGSEGV, True)
    assert exited["error"]["kind"] == "SIGSEGV"
    assert 'train.py", line 3 in f' in exited["error"]["traceback"]


def test_a_script_that_returns_ends_with_code_0_after_its_exit_handlers(keep: Keep) -> None:
    script = """
import atexit, sys, threading, time
atexit.register(lambda: print("handled"))
threading.Thread(target=lambda: (time.sleep(0.2), print("thread done"))).start()
print(sys.argv[1:])
"""
    job = keep(script, arguments=["--epochs", "2"])
    job.desired([0])
    [exited] = job.until_records("rank_exited", 1)
    assert (exited["code"], exited["error"]) == (0, None)
    assert job.log(exited["member_id"], "stdout").splitlines() == ["['--epochs', '2']", "thread done", "handled"]


def test_a_script_of_a_package_is_run_as_a_module(keep: Keep, tmp_path: Path) -> None:
    package = tmp_path / "code" / "shapes"
    package.mkdir(parents=True)
    (package / "net.py").write_text("SIZE = 7")
    (package / "__init__.py").touch()
    (package / "train.py").write_text(
        "import sys\nfrom .net import SIZE\nprint(SIZE, __name__, __package__, sys.path[0], sys.argv)\n1 / 0\n"
    )
    job = keep("", entry_point="shapes/train.py", arguments=["--epochs", "2"])
    job.desired([0])
    [exited] = job.until_records("rank_exited", 1)
    folder, script = str(tmp_path / "code"), str(package / "train.py")
    assert job.log(exited["member_id"], "stdout") == f"7 __main__ shapes {folder} {[script, '--epochs', '2']}\n"
    assert exited["error"]["traceback"].splitlines()[1] == f'  File "{script}", line 4, in <module>'


SHOW_PLACE = """
import json, os, sys
from tidepool.env import rank_context
open_files = {}
for number in os.listdir("/proc/self/fd"):
    try:
        open_files[number] = os.readlink(f"/proc/self/fd/{number}")
    except FileNotFoundError:
        pass
facts = {
    "environment": dict(os.environ),
    "shown": open("/proc/self/environ").read(),
    "path": sys.path,
    "cwd": os.getcwd(),
    "slot": rank_context().slot,
    "open_files": open_files,
}
result = os.path.join(os.environ["RESULT_DIR"], "facts")
with open(result + ".new", "w") as file:
    json.dump(facts, file)
os.rename(result + ".new", result + ".json")
"""
PLAIN_VARIABLES = {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "PYTHONPATH"}
OWN_VARIABLES = ("TIDEPOOL_", "CUDA_", "LC_", "OMP_", "MKL_", "OPENBLAS_", "DATA_DIR", "RESULT_DIR", "LOG_DIR")


def test_rank_sees_its_place(keep: Keep) -> None:
    job = keep(SHOW_PLACE, environment={"EXTRA": "yes"}, compat=["wmla"])
    job.desired([1])
    facts = job.written("facts.json")
    code = job.spec.launch.code_folder
    assert (facts["slot"], facts["cwd"], facts["path"][0]) == (1, code, code)
    assert facts["path"][1].endswith("runtime/compat/wmla")
    assert facts["environment"]["EXTRA"] == "yes"
    assert facts["environment"]["CUDA_VISIBLE_DEVICES"] == ""
    [launch] = Path(job.spec.launch.folder).glob("launch.*.json")
    assert launch.stat().st_mode & 0o777 == 0o600, "it holds the variables' values"


def test_rank_sees_the_gpu_that_its_slot_is_a_part_of(keep: Keep) -> None:
    job = keep(SHOW_PLACE, slots_per_gpu=2)
    job.desired([3])
    assert job.written("facts.json")["environment"]["CUDA_VISIBLE_DEVICES"] == "1"


def test_rank_sees_its_gpu_by_a_name_that_stays_when_another_drops_out(keep: Keep) -> None:
    job = keep(SHOW_PLACE, slots_per_gpu=2, gpus=("GPU-a", "MIG-b"))
    job.desired([3])
    assert job.written("facts.json")["environment"]["CUDA_VISIBLE_DEVICES"] == "MIG-b"


def test_rank_does_not_see_the_repository(keep: Keep) -> None:
    job = keep(SHOW_PLACE)
    job.desired([0])
    assert str(Path(__file__).resolve().parents[2]) not in job.written("facts.json")["path"]


def test_rank_inherits_only_plain_variables_and_no_open_file(keep: Keep) -> None:
    job = keep(SHOW_PLACE)
    job.desired([0])
    facts = job.written("facts.json")
    foreign = {name for name in facts["environment"] if name not in PLAIN_VARIABLES}
    assert {name for name in foreign if not name.startswith(OWN_VARIABLES)} <= {
        *("CHECKPOINT_DIR", "SAVED_MODEL_DIR", "LD_LIBRARY_PATH", "PYTORCH_NVML_BASED_CUDA_CHECK", "VIRTUAL_ENV"),
        *("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "PYTHON_CPU_COUNT"),
    }
    # A thread of the rank itself may be setting the niceness of its session.
    files = sorted(name for name in facts["open_files"].values() if not name.endswith("/autogroup"))
    assert [name.split(":")[0] for name in files if not name.startswith(("/dev/null", job.spec.launch.folder))] == [
        "socket"  # to its shim
    ]


def test_a_secret_of_the_starter_reaches_no_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEPOOL_BROKER_URL", "redis://:canary@broker/0")
    monkeypatch.setenv("TIDEPOOL_DATABASE_URL", "postgres://canary@db/tidepool")
    with running_forkserver() as (forkserver, _), ExitStack() as stack:
        job = stack.enter_context(closing(JobReconciler(forkserver, tmp_path, SHOW_PLACE)))
        job.desired([0])
        facts = job.written("facts.json")
        job.stop()
        job.until_gone()
    assert "canary" not in json.dumps(facts)
    assert "TIDEPOOL_MARK=test" in facts["shown"]


def test_an_older_desired_is_dropped(keep: Keep) -> None:
    job = keep(TRAIN_FOREVER)
    job.desired([0], revision=5)
    [rank] = job.until_ranks(lambda ranks: len(ranks) == 1)
    job.desired([], revision=4)
    job.desired([0, 1], revision=5)
    ranks = job.until_ranks(lambda ranks: len(ranks) == 2)
    assert job.status.target_revision == 5
    assert ranks[0].pid == rank.pid


def test_a_vacating_slot_keeps_its_rank_and_gets_no_new_one(keep: Keep) -> None:
    job = keep(TRAIN_FOREVER)
    job.desired([0, 1])
    ranks = job.until_ranks(lambda ranks: len(ranks) == 2)
    job.desired([0], revision=2, vacating=[1])
    os.kill(ranks[1].pid, signal.SIGKILL)
    job.until_records("rank_exited", 1)
    job.desired([0], revision=3, vacating=[1])
    left = job.until_ranks(lambda ranks: job.status.target_revision == 3)
    assert [rank.pid for rank in left] == [ranks[0].pid]


def test_a_slot_that_is_no_longer_ours_is_emptied(keep: Keep) -> None:
    job = keep(TRAIN_FOREVER)
    job.desired([0, 1])
    ranks = job.until_ranks(lambda ranks: len(ranks) == 2)
    job.desired([0], revision=2)
    [exited] = job.until_records("rank_exited", 1)
    assert (exited["pid"], exited["signal"]) == (ranks[1].pid, signal.SIGTERM)


def test_a_killed_rank_is_started_again_under_a_new_name(keep: Keep) -> None:
    job = keep(TRAIN_FOREVER)
    job.desired([0])
    [first] = job.until_ranks(lambda ranks: len(ranks) == 1)
    os.kill(first.pid, signal.SIGKILL)
    [second] = job.until_ranks(lambda ranks: [rank.member_id for rank in ranks] == ["host-a.0.2"])
    [exited] = job.records("rank_exited")
    assert (exited["member_id"], exited["code"], exited["signal"]) == (first.member_id, None, signal.SIGKILL)
    assert second.pid != first.pid


def test_a_rank_that_is_killed_again_and_again_is_given_up(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    job = keep("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    job.desired([0])
    job.until_records("rank_exited", 1 + RESTART_LIMIT)
    job.desired([0, 1], revision=2)
    job.until_records("rank_exited", 2 + RESTART_LIMIT)
    assert [record["slot"] for record in job.records("rank_started")[1 + RESTART_LIMIT :]] == [1]


def test_a_rank_that_ended_by_itself_is_started_only_after_its_slot_was_released(keep: Keep) -> None:
    job = keep("")
    job.desired([0], revision=1)
    job.until_records("rank_exited", 1)
    job.desired([0], revision=2)
    job.until_ranks(lambda ranks: job.status.target_revision == 2 and not ranks)
    assert len(job.records("rank_started")) == 1
    job.desired([], revision=3, vacating=[0])
    job.desired([0], revision=4)
    assert len(job.until_records("rank_started", 2)) == 2


END_WHEN_TOLD = "import os, time\nwhile not os.path.exists('end'):\n    time.sleep(0.02)\nos.remove('end')\n"


def test_a_slot_wanted_again_before_its_rank_has_left_gets_the_next_one(keep: Keep) -> None:
    job = keep(END_WHEN_TOLD)
    job.desired([0])
    [leaver] = job.until_ranks(lambda ranks: [rank.state for rank in ranks] == ["RUNNING"])
    job.desired([], revision=2, vacating=[0])
    job.desired([0], revision=3)
    (Path(job.spec.launch.code_folder) / "end").touch()
    [successor] = job.until_ranks(lambda ranks: bool(ranks) and ranks[0].member_id != leaver.member_id)
    assert successor.slot == leaver.slot


STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
# An exec'd grandchild in its own session, and a forked one that has left its parent too.
subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"],
                 start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
os.wait()
open(os.path.join(os.environ["RESULT_DIR"], "ready"), "w").write("1")
time.sleep(600)
"""


def test_stop_ends_a_rank_that_ignores_sigterm_and_all_that_it_started(keep: Keep) -> None:
    job = keep(STUBBORN)
    job.desired([0])
    job.written("ready")
    assert len(job.processes()) == 3
    job.stop(grace_seconds=0.5)
    job.until_gone()
    assert job.processes() == []
    [exited] = job.records("rank_exited")
    assert (exited["code"], exited["signal"]) == (None, signal.SIGKILL)


def test_what_a_dead_rank_left_behind_is_ended(keep: Keep) -> None:
    job = keep(STUBBORN)
    job.desired([0])
    job.written("ready")
    before = job.processes()
    [rank] = job.status.ranks or job.until_ranks(lambda ranks: len(ranks) == 1)
    left_behind = [process for process in before if process.pid != rank.pid]
    assert left_behind, "the script has started processes of its own"
    job.desired([], revision=2, vacating=[0])
    os.kill(rank.pid, signal.SIGKILL)
    wait_until(lambda: not any(procfs.runs(process) for process in before))


def test_stop_before_any_rank_ends_the_shim(keep: Keep) -> None:
    job = keep(TRAIN_FOREVER)
    job.stop()
    job.until_gone()
    assert job.records("rank_started") == []


def test_shim_killed_its_ranks_die(keep: Keep) -> None:
    job = keep(TRAIN_FOREVER)
    job.desired([0, 1])
    ranks = job.until_ranks(lambda ranks: len(ranks) == 2)
    os.kill(job.pid, signal.SIGKILL)
    wait_until(lambda: not any(procfs.alive(rank.pid, rank.started_at) for rank in ranks))


def test_the_next_shim_starts_no_rank_of_a_gang_again(keep: Keep) -> None:
    job = keep("", engine="fixed")
    job.desired([0])
    job.until_ranks(lambda ranks: len(ranks) == 1)
    os.kill(job.pid, signal.SIGKILL)
    job.until_gone()
    again = keep("", engine="fixed")
    again.desired([0, 1], revision=2)
    [rank] = again.until_ranks(lambda ranks: len(ranks) == 1)
    assert rank.slot == 1, "slot 0 has had its rank"


def test_the_next_shim_goes_on_numbering(keep: Keep) -> None:
    job = keep(TRAIN_FOREVER)
    job.desired([0])
    job.until_ranks(lambda ranks: len(ranks) == 1)
    job.stop()
    job.until_gone()
    again = keep(TRAIN_FOREVER)
    again.desired([0])
    [rank] = again.until_ranks(lambda ranks: len(ranks) == 1)
    assert rank.member_id == "host-a.0.2"


def test_the_shim_after_an_orderly_end_starts_what_is_wanted(keep: Keep) -> None:
    job = keep("")
    job.desired([0])
    job.until_records("rank_exited", 1)
    job.stop()
    job.until_gone()
    again = keep("")
    again.desired([0], revision=2)
    assert len(again.until_records("rank_exited", 2)) == 2


def test_the_shim_after_a_crash_leaves_ranks_alone_that_had_ended_by_themselves(keep: Keep) -> None:
    job = keep("")
    job.desired([0])
    job.until_ranks(lambda ranks: bool(job.records("rank_exited")) and not ranks)
    os.kill(job.pid, signal.SIGKILL)
    job.until_gone()
    again = keep("")
    again.desired([0, 1])
    again.until_records("rank_exited", 2)
    assert [record["slot"] for record in again.records("rank_started")] == [0, 1]


def test_start_times_are_those_that_psutil_shows(keep: Keep) -> None:
    job = keep(TRAIN_FOREVER)
    job.desired([0])
    [rank] = job.until_ranks(lambda ranks: len(ranks) == 1)
    assert rank.started_at == pytest.approx(psutil.Process(rank.pid).create_time(), abs=0.01)


def test_a_client_that_says_nonsense_disturbs_nobody(keep: Keep) -> None:
    job = keep(TRAIN_FOREVER)
    with json_sockets.connect(job.socket) as stranger:
        stranger.sendall(b"no json\n{}\n")
    job.desired([0])
    assert len(job.until_ranks(lambda ranks: len(ranks) == 1)) == 1


def test_forkserver_has_one_thread(warm_forkserver: Forkserver) -> None:
    pid = json.loads(json_sockets.request(warm_forkserver.socket, b'{"op": "ping"}\n'))["pid"]
    assert len(os.listdir(f"/proc/{pid}/task")) == 1


def test_forkserver_says_why_it_refuses(warm_forkserver: Forkserver, tmp_path: Path) -> None:
    launch = msgspec.structs.replace(launch_spec(tmp_path, ""), folder="/proc/nowhere")
    spec = ShimSpec(1, 1, "host-a", "127.0.0.1", "test", True, launch)
    with pytest.raises(ForkserverError, match="nowhere"):
        warm_forkserver.fork_shim(spec, tmp_path / "shim.sock")


def test_lifeline_closed_nothing_is_left(tmp_path: Path) -> None:
    with running_forkserver() as (forkserver, lifeline), ExitStack() as stack:
        pid = json.loads(json_sockets.request(forkserver.socket, b'{"op": "ping"}\n'))["pid"]
        job = stack.enter_context(closing(JobReconciler(forkserver, tmp_path, STUBBORN)))
        job.desired([0])
        job.written("ready")
        everything = [*job.processes(), psutil.Process(pid), psutil.Process(job.pid)]
        assert len(everything) == 5
        lifeline.close()
        wait_until(lambda: not any(procfs.runs(process) for process in everything))
        assert not forkserver.socket.exists()
        assert not job.socket.exists()


def test_forkserver_killed_shims_and_ranks_live(tmp_path: Path) -> None:
    with running_forkserver() as (forkserver, _), ExitStack() as stack:
        job = stack.enter_context(closing(JobReconciler(forkserver, tmp_path, TRAIN_FOREVER)))
        job.desired([0])
        [rank] = job.until_ranks(lambda ranks: len(ranks) == 1)
        pid = json.loads(json_sockets.request(forkserver.socket, b'{"op": "ping"}\n'))["pid"]
        os.kill(pid, signal.SIGKILL)
        job.desired([0, 1], revision=2)
        ranks = job.until_ranks(lambda ranks: len(ranks) == 2)
        assert ranks[0].pid == rank.pid
        job.stop()
        job.until_gone()
