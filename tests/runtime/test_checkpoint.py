"""Checkpoints: whole or not at all, verified when read, and a training continues from one."""

import hashlib
import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tidepool.protocol import CHECKPOINT_SECONDS, LaunchSpec
from tidepool.refusal import Refusal
from tidepool.torch.coordination.publication import aside_name, final_name, prune, publish, sweep
from tidepool.torch.rank.checkpointer import CheckpointPolicy
from tidepool.torch.rank.options import Options, chosen_options
from tidepool.torch.state import checkpoint_files
from tidepool.torch.state.checkpoint_files import CheckpointError, load_weights, read_checkpoint, write_files
from tidepool.torch.state.state_copy import StateCopy
from tidepool.torch.state.training_state import Position, TrainingState

from tests.runtime.lab import Lab
from tests.waiting import wait_until


def training(seed: int) -> TrainingState:
    torch.manual_seed(seed)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return TrainingState(model, {"optimizer": optimizer}, {}, Position(step=seed, effective_batch_size=64))


def written(folder: Path, state: TrainingState, member_id: str = "a.0.1") -> Path:
    """A published checkpoint of `state`."""
    write_files(folder / aside_name(state.position.step, member_id), *state.pack())
    return publish(folder, state.position.step, member_id)


def test_a_checkpoint_restores_everything(tmp_path: Path) -> None:
    saved, other = training(5), training(6)
    read_checkpoint(written(tmp_path, saved), other)
    assert other.pack()[0] == saved.pack()[0]
    assert all(a.equal(b) for a, b in zip(other.pack()[1], saved.pack()[1], strict=True))


def test_its_weights_alone_are_a_beginning_too(tmp_path: Path) -> None:
    saved, other = training(5), training(6)
    before = other.pack()[0]
    path = written(tmp_path, saved) / "state.safetensors"
    load_weights(path.parent, other.model)
    assert all(a.equal(b) for a, b in zip(other.model.parameters(), saved.model.parameters(), strict=True))
    assert other.pack()[0] == before, "the position stays"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(CheckpointError, match="is corrupt"):
        load_weights(path.parent, other.model)


@pytest.mark.parametrize("name", ["weights.pth", "weights.safetensors"])
def test_a_file_of_weights_is_a_beginning(tmp_path: Path, name: str) -> None:
    saved, other = training(5), training(6)
    path = tmp_path / name
    if path.suffix == ".pth":
        torch.save(saved.model.state_dict(), path)
    else:
        save_file(saved.model.state_dict(), path)
    load_weights(path, other.model)
    assert all(a.equal(b) for a, b in zip(other.model.parameters(), saved.model.parameters(), strict=True))
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(Refusal, match="the initial weights cannot be read"):
        load_weights(path, other.model)


def test_its_tensors_are_a_safetensors_file_of_any_shape_and_type(tmp_path: Path) -> None:
    types = [torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool]
    tensors = [torch.ones(3, dtype=dtype) for dtype in types] + [torch.tensor(7.5), torch.zeros(2, 0), torch.arange(9)]
    size_bytes, _ = write_files(tmp_path / "one", "{}", tensors)
    assert size_bytes == (tmp_path / "one/state.safetensors").stat().st_size
    read = load_file(tmp_path / "one/state.safetensors")
    assert [read[str(number)].tolist() for number in range(len(tensors))] == [tensor.tolist() for tensor in tensors]
    assert [read[str(number)].dtype for number in range(len(tensors))] == [tensor.dtype for tensor in tensors]


def change(state: TrainingState) -> None:
    with torch.no_grad():
        state.model.weight.add_(1.0)  # type: ignore[operator, union-attr]


@pytest.mark.parametrize("behind", [True, False])
def test_a_copy_stays_as_it_was_while_training_goes_on(behind: bool) -> None:
    state, copy = training(5), StateCopy()
    tensors = state.pack()[1]
    assert not copy.fits(tensors)
    copy.make_room(tensors)
    before = [tensor.clone() for tensor in tensors]
    copy.begin(tensors, [behind] * len(tensors))
    if not behind:
        change(state)
    assert copy.finish()
    copy.settle()
    change(state)
    assert all(kept.equal(old) for kept, old in zip(copy.tensors, before, strict=True))
    assert copy.fits(state.pack()[1]), "the same buffers do for the next one"


def test_an_update_waits_for_the_copy() -> None:
    state, copy, settled = training(5), StateCopy(), threading.Event()
    tensors = state.pack()[1]
    before = [tensor.clone() for tensor in tensors]
    copy.make_room(tensors)
    copy.begin(tensors, state.are_shared(tensors))

    def update() -> None:
        copy.settle()
        settled.set()
        change(state)

    thread = threading.Thread(target=update)
    thread.start()
    assert not settled.wait(0.2)
    assert copy.finish()
    thread.join()
    assert all(kept.equal(old) for kept, old in zip(copy.tensors, before, strict=True))
    copy.settle()  # waits for nothing any more


@pytest.mark.parametrize("settles_first", [True, False])
def test_a_copy_of_weights_that_the_script_changes_meanwhile_is_none(settles_first: bool) -> None:
    state, copy = training(5), StateCopy()
    tensors = state.pack()[1]
    copy.make_room(tensors)
    copy.begin(tensors, state.are_shared(tensors))
    change(state)
    if settles_first:
        thread = threading.Thread(target=copy.settle)
        thread.start()
        wait_until(lambda: copy._is_settled, lambda: "the training thread")
        assert not copy.finish()
        thread.join()
    else:
        assert not copy.finish()


def test_a_corrupt_checkpoint_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, training(5)) / "state.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="sha256"):
        read_checkpoint(path.parent, training(6))


@pytest.mark.parametrize("header", ["{}", "[]", "not JSON"])
def test_a_checkpoint_with_a_strange_header_is_refused(tmp_path: Path, header: str) -> None:
    path = written(tmp_path, training(5))
    (path / "state.json").write_text(header)
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_checkpoint(path, training(6))


def test_a_position_that_was_tampered_with_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, training(5))
    header = json.loads((path / "state.json").read_text())
    header["structure"] = header["structure"].replace('["step", 5]', '["step", 6]')
    (path / "state.json").write_text(json.dumps(header))
    with pytest.raises(CheckpointError, match="sha256"):
        read_checkpoint(path, training(6))


def test_an_incomplete_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "step-1").mkdir()
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_checkpoint(tmp_path / "step-1", training(6))


# --- publication -----------------------------------------------------------------------------------------------------


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_aside_is_seen_by_nobody_until_it_is_published(tmp_path: Path) -> None:
    write_files(tmp_path / aside_name(5, "a.0.1"), *training(5).pack())
    assert not list(tmp_path.glob("step-*"))
    assert publish(tmp_path, 5, "a.0.1") == tmp_path / final_name(5)
    assert publish(tmp_path, 5, "a.0.1") == tmp_path / final_name(5), "its word may come again"
    assert names(tmp_path) == [final_name(5)]


def test_what_was_never_written_is_not_published(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="writing"):
        publish(tmp_path, 5, "a.0.1")


def test_the_same_step_by_another_rank_takes_the_place_of_the_first(tmp_path: Path) -> None:
    written(tmp_path, training(5))
    written(tmp_path, training(5), "a.1.2")
    assert names(tmp_path) == [final_name(5)]


def test_old_checkpoints_make_room(tmp_path: Path) -> None:
    for step in range(1, 6):
        written(tmp_path, training(step))
    prune(tmp_path, 2)
    assert names(tmp_path) == [final_name(4), final_name(5)]


def test_checkpoints_that_the_control_plane_knows_stay_until_it_knows_newer_ones(tmp_path: Path) -> None:
    for step in range(1, 7):
        written(tmp_path, training(step))
    prune(tmp_path, 1, [final_name(1), final_name(3)])
    assert names(tmp_path) == [final_name(3), final_name(6)]
    prune(tmp_path, 1, [final_name(1), final_name(3), final_name(6)])
    assert names(tmp_path) == [final_name(6)]


def test_leftovers_of_ranks_that_are_gone_are_swept(tmp_path: Path) -> None:
    kept = [aside_name(3, "host-1.example.0.1"), final_name(2)]
    for name in [*kept, aside_name(3, "a.1.1"), ".dropped-12step-000000001"]:
        (tmp_path / name).mkdir()
    sweep(tmp_path, {"host-1.example.0.1"})
    assert names(tmp_path) == sorted(kept)


def policy(seconds: float | None = None, *, submitted: float | None = None, every: int | None = None) -> Any:
    launch = LaunchSpec("", "", "", [], "", {}, [], 1, 1, None, 0, "sum", checkpoint_seconds=submitted)
    given = Options(effective_batch_size=1, checkpoint_seconds=seconds, checkpoint_every=every)
    found = chosen_options(launch, given).checkpoints
    return found.seconds, found.every_epochs


def test_when_checkpoints_are_due_follows_the_job_then_the_script() -> None:
    assert policy() == (CHECKPOINT_SECONDS, 0)
    assert policy(every=3) == (CHECKPOINT_SECONDS, 3)
    assert policy(every=0) == (0, 0), "none at all"
    assert policy(5.0, every=0) == (5.0, 0)
    assert policy(5.0, submitted=7.0, every=3) == (7.0, 3)
    assert policy(5.0, submitted=0.0, every=3) == (0.0, 0), "the job wants none at all"
    assert not CheckpointPolicy(seconds=0).is_due(1e9)
    assert not CheckpointPolicy(every_epochs=0).is_due_after(1)


@pytest.mark.parametrize(("submitted", "script", "kept"), [(None, None, None), (None, 5, 5), (3, 5, 3), (3, None, 3)])
def test_the_job_says_before_the_script_how_many_are_kept(
    submitted: int | None, script: int | None, kept: int | None
) -> None:
    launch = LaunchSpec("", "", "", [], "", {}, [], 1, 1, None, 0, "sum", checkpoints_kept=submitted)
    given = Options(effective_batch_size=1, checkpoints_kept=script)
    assert chosen_options(launch, given).checkpoints.kept == kept


# --- through real processes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_training_continues_from_its_checkpoint(make_lab: Callable[..., Lab], ranks: int) -> None:
    first = make_lab("mlp.py", arguments=["--epochs", "4", "--every", "1"])
    first.size(1)
    first.wait_for_the_end()
    # One that a slow coordinator has not published yet gives way to the next.
    checkpoint = [each for each in first.journal("checkpoint") if each["epoch"] < 4][-1]
    assert checkpoint["step"] == checkpoint["epoch"] * 17

    second = make_lab(
        "mlp.py", arguments=["--epochs", "4"], checkpoints=[str(first.folder / checkpoint["path"])], min_slots=ranks
    )
    second.size(ranks)
    second.wait_for_the_end()

    assert [record["step"] for record in second.steps()] == list(range(checkpoint["step"] + 1, 4 * 17 + 1))
    ends = [torch.load(lab.folder / "model/train/model_epoch_final.pth", weights_only=True) for lab in (first, second)]
    assert all(ends[0][name].allclose(ends[1][name], atol=1e-5) for name in ends[0])
    assert all(ends[0][name].equal(ends[1][name]) for name in ends[0]) or ranks > 1, "one rank adds in the same order"


def test_a_job_says_that_its_checkpoint_is_unusable(make_lab: Callable[..., Lab], tmp_path: Path) -> None:
    lab = make_lab("mlp.py", initial_checkpoint=str(tmp_path / "step-1"), min_slots=2)
    lab.size(2)
    wait_until(lambda: lab.exits(), lab.story)

    [failed, *_] = lab.exits().values()
    assert failed["code"] == 1
    assert failed["error"]["kind"] == "CheckpointError"
    assert "the checkpoint step-1 cannot be read" in failed["error"]["message"]
    assert lab.steps() == []


def mid_epoch(lab: Lab) -> dict[str, Any]:
    """Wait for a checkpoint in the middle of an epoch; returns the newest."""
    return dict(wait_until(lambda: lab.journal("checkpoint"), lab.story)[-1])


def samples_of(lab: Lab) -> list[str]:
    return [line for path in lab.folder.glob("log/*/samples") for line in path.read_text().splitlines()]


def test_training_continues_in_the_middle_of_an_epoch_from_the_newest_usable_checkpoint(
    make_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    """The newest one is corrupt; the one before has each sample once, together with what was read before it."""
    options = ["--epochs", "2", "--samples", "2100", "--no-evaluation", "--step-seconds", "0.2"]
    first = make_lab("mlp.py", arguments=options, checkpoint_seconds=0.2, checkpoints_kept=3, min_slots=2)
    first.size(2)
    first.wait_for_size(2)
    wait_until(lambda: len(first.journal("checkpoint")) >= 3, first.story)
    first.stop()
    wait_until(lambda: not process_lives(first.coordinator["pid"]), first.story)
    older, newest = [first.folder / entry["path"] for entry in first.journal("checkpoint")[-2:]]
    assert sorted(path.name for path in (first.folder / "checkpoint").glob("step-*"))[-2:] == [older.name, newest.name]
    with (newest / "state.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"x")

    second = make_lab("mlp.py", arguments=[*options[:-1], "0"], checkpoints=[str(newest), str(older)])
    second.size(2)
    second.wait_for_the_end()
    step = int(older.name.removeprefix("step-"))
    assert step % 33, "not at the end of an epoch"
    [restored] = second.journal("restored")
    assert (restored["step"], restored["used"]) == (step, str(older))
    assert [(each["path"], "sha256" in each["why"]) for each in restored["unusable"]] == [(str(newest), True)]
    assert [record["step"] for record in second.steps()] == list(range(step + 1, 67))
    assert [record["step"] for record in first.steps()][:step] == list(range(1, step + 1))

    read = Counter(samples_of(second))
    done = {(record["epoch"], record["cursor"]) for record in first.steps() if record["step"] == step}
    [(epoch, cursor)] = done
    assert sum(read.values()) == 2 * 2100 - (epoch * 2100 + cursor)
    assert set(read.values()) == {1}
    assert set(read) <= {f"{epoch} {index}" for epoch in range(2) for index in range(2100)}


def test_without_a_usable_checkpoint_training_starts_from_nothing_and_says_so(
    make_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    lab = make_lab("mlp.py", arguments=["--epochs", "1"], checkpoints=[str(tmp_path / "step-1")])
    lab.size(1)
    lab.wait_for_the_end()
    [restored] = lab.journal("restored")
    assert (restored["used"], restored["step"]) == ("", 0)
    assert "cannot be read" in restored["unusable"][0]["why"]
    assert lab.steps()[0]["step"] == 1


def test_a_writer_that_dies_leaves_nothing_half_seen(make_lab: Callable[..., Lab]) -> None:
    """Three in turn, each at another moment of its checkpoint."""
    points = {"snapshot": "a.0.", "checkpoint-write": "a.1.", "checkpoint-written": "a.2."}
    lab = make_lab(
        "mlp.py",
        arguments=["--epochs", "100", "--no-evaluation", "--step-seconds", "0.01"],
        environment={"TIDEPOOL_FAULT": ",".join(f"{point}@{member_id}:1:kill" for point, member_id in points.items())},
        checkpoint_seconds=0.1,
        min_slots=4,
    )
    lab.size(4)
    wait_until(lambda: len({member_id[:4] for member_id in lab.exits()}) == 3, lab.story)
    killed = [member_id for member_id, exited in lab.exits().items() if exited["signal"] == signal.SIGKILL]
    wait_until(lambda: len(lab.journal("checkpoint")) > 1, lab.story)
    folder = lab.folder / "checkpoint"
    left = [f"-{member_id}" for member_id in killed]
    wait_until(lambda: not [name for name in names(folder) if name.endswith(tuple(left))], lab.story)
    lab.stop()
    wait_until(lambda: not process_lives(lab.coordinator["pid"]), lab.story)
    assert len(list(folder.glob("step-*"))) == 2
    for path in folder.glob("step-*"):
        assert (
            hashlib.sha256((path / "state.safetensors").read_bytes()).hexdigest() in (path / "state.json").read_text()
        )
    assert [record["step"] for record in lab.steps()] == list(range(1, len(lab.steps()) + 1))


def test_a_disk_without_room_costs_the_checkpoint_and_nothing_else(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(
        "mlp.py",
        arguments=["--epochs", "100", "--no-evaluation", "--step-seconds", "0.01"],
        environment={"TIDEPOOL_FAULT": "checkpoint-write:2:raise,checkpoint-write:3:raise"},
        checkpoint_seconds=0.1,
    )
    lab.size(1)
    wait_until(lambda: len(lab.journal("checkpoint")) >= 2, lab.story)
    [failed] = lab.journal("checkpoint_failed")
    assert "checkpoint-write" in failed["error"]
    assert "training goes on" in next(lab.folder.glob("log/*/stderr")).read_text()
    assert not lab.exits()


@pytest.mark.parametrize("point", ["publish", "published"])
def test_a_coordinator_that_dies_while_it_publishes_is_told_again(make_lab: Callable[..., Lab], point: str) -> None:
    lab = make_lab(
        "mlp.py",
        arguments=["--epochs", "100", "--no-evaluation", "--step-seconds", "0.01"],
        environment={"TIDEPOOL_FAULT": f"{point}:1:kill"},
        checkpoint_seconds=0.5,
    )
    lab.size(1)
    wait_until(lambda: not process_lives(lab.coordinator["pid"]), lab.story)
    assert not lab.journal("checkpoint")
    lab.launch.environment.clear()
    lab.start_coordinator()
    first = mid_epoch(lab)
    assert (lab.folder / first["path"] / "state.json").exists()
    wait_until(lambda: len(lab.journal("checkpoint")) > 2, lab.story)
    steps = [entry["step"] for entry in lab.journal("checkpoint")]
    assert steps == sorted(set(steps)), "each once"
    assert not lab.exits()


def test_a_coordinator_that_stood_still_publishes_what_is_newest_and_calls_nothing_failed(
    make_lab: Callable[..., Lab],
) -> None:
    lab = make_lab(
        "mlp.py",
        arguments=["--epochs", "100", "--no-evaluation", "--step-seconds", "0.01"],
        environment={"TIDEPOOL_FAULT": "publish:1:stop"},
        checkpoint_seconds=0.2,
    )
    lab.size(1)
    pid = lab.coordinator["pid"]
    wait_until(lambda: Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T", lab.story)
    steps: set[int] = set()

    def wrote_another() -> bool:
        steps.update(int(path.name.split("-")[1]) for path in (lab.folder / "checkpoint").glob(".writing-*"))
        return len(steps) > 1

    wait_until(wrote_another, lab.story)
    os.kill(pid, signal.SIGCONT)
    wait_until(lambda: lab.journal("checkpoint"), lab.story)
    assert not lab.journal("checkpoint_failed")
    assert lab.journal("checkpoint")[0]["step"] > min(steps), "the one it was about to publish is gone"
    assert not lab.exits()


def process_lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_the_period_goes_on_when_rank_0_changes(make_lab: Callable[..., Lab]) -> None:
    """Rank 0 is replaced more often than a checkpoint is due."""
    lab = make_lab(
        "mlp.py",
        arguments=["--epochs", "1000", "--no-evaluation", "--step-seconds", "0.01"],
        checkpoint_seconds=2.0,
    )
    lab.size(1)
    lab.wait_for_size(1)
    for turn in range(30):
        lab.target(("a", turn % 4), ("a", (turn + 1) % 4))
        wait_until(lambda place=turn + 1: lab.active()["members"][-1]["slot"] == place % 4, lab.story)
        lab.wait_for_steps(20)
        if turn >= 2 and lab.journal("checkpoint"):  # a busy machine may take as long for the first turn
            break
    assert lab.journal("checkpoint")
    assert len(lab.started()) > 2


KINDS = sorted(
    {
        kind
        for kind in vars(torch).values()
        if isinstance(kind, torch.dtype) and kind.itemsize and not str(kind).startswith(("torch.q", "torch.bits"))
    },
    key=str,
)


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_tensors_of_every_type_are_written_and_read(tmp_path: Path, kind: torch.dtype) -> None:
    tensors = [torch.empty(shape, dtype=kind) for shape in [(), (0,), (3,), (2, 5)]]
    for number, tensor in enumerate(tensors):
        content = tensor.view(-1).view(torch.uint8)
        content.copy_(torch.arange(number, number + content.numel()) % 2)
    write_files(tmp_path / "checkpoint", {"dict": []}, tensors)
    structure, read = checkpoint_files._read(tmp_path / "checkpoint")
    assert structure == {"dict": []}
    for tensor, found in zip(tensors, read, strict=True):
        assert (found.dtype, found.shape) == (kind, tensor.shape)
        assert found.view(-1).view(torch.uint8).equal(tensor.view(-1).view(torch.uint8))
