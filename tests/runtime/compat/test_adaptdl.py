"""AdaptDL's scripts on a cluster: through resizes, deaths and a halt they compute what one process computes alone."""

import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.runtime.bits import different
from tests.runtime.disturbance import disturbed, final_weights
from tests.runtime.lab import OFF_CLUSTER, RUNTIME, Lab
from tests.waiting import wait_until

SCRIPT = Path(__file__).parent / "scripts" / "adl.py"
EPOCHS, SAMPLES, BATCH = 8, 290, 64
STEPS = EPOCHS * -(-SAMPLES // BATCH)
ARGUMENTS = ["--epochs", str(EPOCHS), "--samples", str(SAMPLES), "--batch", str(BATCH)]
STEP_SECONDS = ["--step-seconds", "0.1"]
MODULES = f"{RUNTIME / 'compat' / 'adaptdl'}:{RUNTIME}"

DEATH = {"TIDEPOOL_FAULT": "reduce@a.1.2:12:kill"}

MakeLab = Callable[..., Lab]


@pytest.fixture
def make_lab(make_lab: MakeLab, tmp_path: Path) -> MakeLab:
    """Labs whose code is a copy: what is written into the share path lies beside it."""
    code = shutil.copytree(SCRIPT.parent, tmp_path / "code", ignore=shutil.ignore_patterns("__pycache__"))
    return partial(make_lab, code_folder=str(code))


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], list[str]]:
    """Weights and what is printed, of the script run by plain python."""
    out = tmp_path_factory.mktemp("alone") / "alone.pth"
    environment = {**OFF_CLUSTER, "PYTHONPATH": MODULES}
    command = [sys.executable, str(SCRIPT), *ARGUMENTS, "--out", str(out)]
    ran = subprocess.run(command, check=True, env=environment, timeout=300, capture_output=True, text=True)
    return torch.load(out, weights_only=True), ran.stdout.splitlines()


def job(make_lab: MakeLab, arguments: list[str], **options: Any) -> Lab:
    return example(make_lab, SCRIPT.name, [*ARGUMENTS, *arguments], **options)


def example(make_lab: MakeLab, script: str, arguments: list[str], **options: Any) -> Lab:
    fixed = {"compat": ["adaptdl"], "seed": 0}
    return make_lab(script, arguments=arguments, **fixed, **options)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def printed(lab: Lab, member_id: str) -> list[str]:
    """Return the lines that the script has printed; gloo of older torch prints of its connections."""
    lines = next(lab.folder.glob(f"log/{member_id}.*/stdout")).read_text().splitlines()
    return [line for line in lines if not line.startswith("[Gloo]")]


def assert_same(told: list[str], expected: list[str]) -> None:
    """The same sums in the same order: counts exactly, means up to the order of their addition."""
    words, wanted = ([line.split() for line in lines] for lines in (told, expected))
    assert [line[:2] for line in words] == [line[:2] for line in wanted]
    assert [float(line[2]) for line in words] == pytest.approx([float(line[2]) for line in wanted], rel=1e-4)


def alike(final: dict[str, Any], expected: dict[str, Any]) -> bool:
    return all(torch.allclose(final[name], tensor, atol=1e-5) for name, tensor in expected.items())


@pytest.mark.parametrize(
    ("arguments", "death"),
    [
        (["--never-zero"], "reduce@a.1.2:9"),
        (["--by-range"], "step-result@a.0.1:9"),
        (["--scaler"], "sum-result@a.1.2:2"),
    ],
    ids=["in a sum of gradients", "without epochs, after a step", "with a scaler, in a sum of statistics"],
)
def test_deaths_and_resizes_cost_nothing(
    make_lab: MakeLab, expected: tuple[dict[str, Any], list[str]], arguments: list[str], death: str
) -> None:
    weights, lines = expected
    lab = job(make_lab, [*arguments, *STEP_SECONDS], environment={"TIDEPOOL_FAULT": f"{death}:kill"})
    assert alike(disturbed(lab, death.split("@")[1].split(":")[0], STEPS), weights)
    told = [line for line in printed(lab, lab.member_ids()[0]) if line.startswith("evaluated")]
    assert told
    assert_same(told, [line for line in lines if line.startswith("evaluated")][-len(told) :])


def test_bitwise_pictures_that_are_cropped_at_random_give_the_same_to_the_bit(make_lab: MakeLab) -> None:
    """Train as AdaptDL's example of CIFAR does."""
    exact = {"exactness": "bitwise", "virtual_ranks": 4}
    undisturbed = example(make_lab, "adl_pictures.py", [], **exact)
    undisturbed.size(1)
    undisturbed.wait_for_the_end()
    lab = example(make_lab, "adl_pictures.py", STEP_SECONDS, environment=DEATH, **exact)
    assert different(disturbed(lab, "a.1.2", 6 * 4), final_weights(undisturbed)) == []
    assert [record["loss"] for record in lab.steps()] == [record["loss"] for record in undisturbed.steps()]
    assert list(lab.folder.glob("tensorboard/tidepool/1/events.*"))


def test_a_halt_keeps_what_the_script_has_counted(
    make_lab: MakeLab, expected: tuple[dict[str, Any], list[str]]
) -> None:
    weights, lines = expected
    first = job(make_lab, STEP_SECONDS, min_slots=2)
    first.size(2)
    first.wait_for_size(2)
    first.wait_for_steps(8)
    first.halt()
    wait_until(lambda: first.journal("halted") and len(first.exits()) == len(first.started()), first.story)
    step = first.journal("halted")[-1]["step"]
    checkpoint = str(first.folder / first.journal("checkpoint")[-1]["path"])
    second = job(make_lab, [], checkpoints=[checkpoint])
    second.size(2)
    second.wait_for_the_end()
    assert [record["step"] for record in second.steps()] == list(range(step + 1, STEPS + 1))
    assert alike(final_weights(second), weights)
    trained = [line for line in printed(second, second.member_ids()[0]) if line.startswith("trained")]
    assert_same(trained, [line for line in lines if line.startswith("trained")][-len(trained) :])


def test_a_joiner_sees_the_place_in_the_loop_that_the_others_see(make_lab: MakeLab) -> None:
    lab = example(make_lab, "adl_index.py", ["--step-seconds", "0.2", "--every", "32"], effective_batch_size=32)
    lab.size(1)
    lab.wait_for_steps(6)
    lab.size(2)
    lab.wait_for_size(2)
    lab.wait_for_the_end()
    assert all(end["code"] == 0 for end in lab.exits().values()), lab.story()
    assert len(lab.steps()) == 64
    first, joiner = (printed(lab, member_id) for member_id in lab.member_ids())
    assert joiner[0].split()[2] != "0", "it comes in the middle of the epoch"
    assert first[-len(joiner) + 1 :] == joiner[1:], "in its first step the others' count of replicas may be older"
    assert [line.split()[1:4] for line in first[-len(joiner) :]] == [line.split()[1:4] for line in joiner]
    sums = [line.split() for line in first if line.startswith("sum")]
    assert [int(samples) for _, _, _, samples in sums] == [int(at) + 32 for _, _, at, _ in sums]


def test_a_sum_that_one_replica_reads_alone_stops_the_training(make_lab: MakeLab) -> None:
    lab = example(make_lab, "adl_index.py", ["--alone"], min_slots=2)
    lab.size(2)
    wait_until(lambda: lab.journal("lost") and len(lab.exits()) == 2, lab.story)
    [(kind, message)] = {(end["error"]["kind"], end["error"]["message"]) for end in lab.exits().values()}
    assert kind == "CallsDiffer"
    assert "a.1.2 in Accumulator.synchronized() at adl_index.py, line 4" in message
    assert "a.0.1 in the sum of a step's gradients at adl_index.py, line 3" in message
    assert len(lab.journal("generation_active")) == 1


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_replicas_off_the_cluster_hear_of_both_places(tmp_path: Path, address: str) -> None:
    command = [sys.executable, str(SCRIPT.with_name("adl_index.py")), "--alone"]
    place = {"ADAPTDL_MASTER_ADDR": address, "ADAPTDL_MASTER_PORT": str(free_port())}
    meeting = {**place, "ADAPTDL_NUM_REPLICAS": "2", "PYTHONPATH": MODULES}
    replicas = [
        subprocess.Popen(
            command,
            env={**OFF_CLUSTER, **meeting, "ADAPTDL_REPLICA_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for process in replicas:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 1
        assert "rank 0 in the sum of a step's gradients at " in errors
        assert "rank 1 in Accumulator.synchronized() at " in errors
        assert errors.count("wait for each other in different calls") == 1


@pytest.mark.long
def test_processes_that_meet_by_an_address_stop_together_and_go_on(
    tmp_path: Path, expected: tuple[dict[str, Any], list[str]]
) -> None:
    weights, lines = expected
    port = free_port()

    def replicas(count: int, *arguments: str) -> list[subprocess.Popen[str]]:
        command = [sys.executable, str(SCRIPT), *ARGUMENTS, *arguments, "--out", str(tmp_path / "together.pth")]
        common = {**OFF_CLUSTER, "PYTHONPATH": MODULES, "ADAPTDL_CHECKPOINT_PATH": str(tmp_path / "checkpoint")}
        places = {"ADAPTDL_MASTER_PORT": str(port), "ADAPTDL_NUM_REPLICAS": str(count)}
        return [
            subprocess.Popen(
                command,
                env={**common, **places, "ADAPTDL_REPLICA_RANK": str(rank)},
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(count)
        ]

    together = replicas(2, "--step-seconds", "0.05")
    assert together[0].stdout is not None
    begun = together[0].stdout.readline()
    together[1].send_signal(signal.SIGTERM)
    # Without a time limit: with one it would miss what came together with the first line.
    told = [process.communicate()[0] for process in together]
    assert [process.returncode for process in together] == [143, 143]
    [one] = replicas(1)
    rest, _ = one.communicate(timeout=120)
    assert one.returncode == 0
    assert alike(torch.load(tmp_path / "together.pth", weights_only=True), weights)
    assert_same([begun, *told[0].splitlines(), *rest.splitlines()], lines)


@pytest.mark.long
def test_recommendations_whose_batch_grows_do_so_alike_on_all_replicas(make_lab: MakeLab, tmp_path: Path) -> None:
    """Train as AdaptDL's example of recommendations does, with its options for batches."""
    # Larger batches make fewer steps: each takes longer, so that the third replica comes before the end.
    arguments = ["--autoscale-bsz", "--gradient-accumulation", "--step-seconds", "0.4"]
    lab = example(make_lab, "adl_ratings.py", arguments, environment=DEATH)
    lab.size(2)
    lab.wait_for_steps(8)
    lab.size(3)
    lab.wait_for_size(3)
    wait_until(lambda: "a.1.2" in lab.exits(), lab.story)
    lab.wait_for_the_end()
    assert all(end["code"] == 0 for member_id, end in lab.exits().items() if member_id != "a.1.2"), lab.story()
    steps = lab.steps()
    assert [record["step"] for record in steps] == list(range(1, len(steps) + 1))
    assert all(record["samples"] == record["batch_size"] <= 256 for record in steps)
    pairs = 5 * 127  # ratings, each with four that are wrong
    worth = sum(record["gain"] for record in steps)
    assert worth == pytest.approx(6 * pairs / 64, abs=steps[-1]["gain"]), "an epoch is as much progress"
    assert (tmp_path / "code/models/best.pth").exists(), "in the share path: a result, whatever attempt wrote it"
    assert (lab.folder / "model/train/model_epoch_final.pth").exists()
