"""SIGKILL at each fault point that a rank passes, of rank 0 and of others: the survivors train on and lose nothing.

Each case is a real job that also grows. Not here: ranks that are about to leave (`test_failures`), halts (`test_halt`),
and the coordinator's own points (`test_checkpoint`).
"""

import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch

from tests.runtime.lab import SCRIPTS, Lab
from tests.runtime.off_cluster import run_off_cluster
from tests.waiting import wait_until

EPOCHS, SAMPLES, BATCH = 24, 290, 64
STEPS = EPOCHS * -(-SAMPLES // BATCH)
ARGUMENTS = ["--epochs", str(EPOCHS), "--samples", str(SAMPLES), "--batch", str(BATCH)]
#: Drawn out until all has happened that shall, so that a slow machine has the time for it.
STEP_SECONDS = "0.1"


@dataclass(frozen=True)
class Case:
    #: Ranks that begin together, a.0.1 as rank 0 and its state's source; and how many there shall be then.
    begin: int
    grow: int
    #: point@member_id:passage, in the order in which they come.
    deaths: tuple[str, ...]

    @property
    def victims(self) -> list[str]:
        return [death.split("@")[1].split(":")[0] for death in self.deaths]


CASES = {
    "prepare": Case(3, 4, ("prepare@a.0.1:2", "prepare@a.2.3:3")),
    "prepare, a joiner": Case(2, 4, ("prepare@a.2.3:1",)),
    "switch": Case(3, 4, ("switch@a.0.1:1", "switch@a.2.3:2")),
    "send, rank 0": Case(2, 4, ("send@a.0.1:2",)),
    "send, another": Case(2, 4, ("send@a.1.2:1",)),
    "transfer, rank 0 sends": Case(2, 4, ("transfer@a.0.1:2",)),
    "transfer, another sends": Case(2, 4, ("transfer@a.1.2:2",)),
    "transfer, a joiner": Case(2, 4, ("transfer@a.2.3:1",)),
    "receive, a joiner": Case(2, 4, ("receive@a.2.3:1",)),
    "reduce": Case(3, 4, ("reduce@a.0.1:4", "reduce@a.2.3:9")),
    "step-result": Case(3, 4, ("step-result@a.0.1:4", "step-result@a.2.3:9")),
    "optimizer": Case(3, 4, ("optimizer@a.0.1:4", "optimizer@a.2.3:9")),
    "sum-result": Case(3, 4, ("sum-result@a.0.1:1", "sum-result@a.2.3:3")),
    "agree, rank 0": Case(3, 4, ("reduce@a.1.2:4", "agree@a.0.1:1")),
    "agree, another": Case(3, 4, ("reduce@a.0.1:4", "agree@a.2.3:1")),
    "checkpoints, each rank 0 in turn": Case(
        4, 4, ("snapshot@a.0.1:1", "checkpoint-write@a.1.2:1", "checkpoint-written@a.2.3:1")
    ),
}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """Weights of the same script run by plain python: one rank, never interrupted."""
    out = tmp_path_factory.mktemp("reference") / "weights.pth"
    run_off_cluster(SCRIPTS / "mlp.py", *ARGUMENTS, "--out", out)
    return torch.load(out, weights_only=True)


def assert_nothing_lost(lab: Lab, reference: dict[str, torch.Tensor]) -> None:
    """Each step once, in order; each sample once per epoch, but for those of a step that a recovery made again."""
    assert [record["step"] for record in lab.steps()] == list(range(1, STEPS + 1))
    read = Counter(line for path in lab.folder.glob("log/*/samples") for line in path.read_text().splitlines())
    assert set(read) == {f"{epoch} {index}" for epoch in range(EPOCHS) for index in range(SAMPLES)}
    recoveries = [plan for plan in lab.journal("generation_planned") if plan["cause"] == "failure"]
    assert read.total() - len(read) <= BATCH * len(recoveries)
    final = torch.load(lab.folder / "model/train/model_epoch_final.pth", weights_only=True)
    for name, tensor in reference.items():
        assert torch.allclose(final[name], tensor, atol=1e-5), name


#: Points at which any sender dies in the same lines; rank 0 does more besides.
LONG = {"send, another", "transfer, another sends"}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.long] * (name in LONG)) for name in CASES])
def test_survivors_train_on(make_lab: Callable[..., Lab], reference: dict[str, torch.Tensor], name: str) -> None:
    case = CASES[name]
    lab = make_lab(
        "mlp.py",
        arguments=[*ARGUMENTS, "--step-seconds", STEP_SECONDS],
        sizes={"a": 4},
        environment={"TIDEPOOL_FAULT": ",".join(f"{death}:kill" for death in case.deaths)},
        min_slots=case.begin,
        checkpoint_seconds=0.3 if "checkpoint" in name else 0.0,
    )
    lab.size(case.begin)
    first = [f"a.{slot}.{slot + 1}" for slot in range(case.begin)]
    wait_until(lambda: lab.member_ids()[: case.begin] == first or lab.exits(), lab.story)
    lab.size(case.grow)
    wait_until(lambda: set(case.victims) <= set(lab.exits()), lab.story)
    wait_until(lambda: len(lab.member_ids()) == case.grow and not set(case.victims) & set(lab.member_ids()), lab.story)
    lab.wait_for_the_end()

    exits, survivors = lab.exits(), [member_id for member_id in first if member_id not in case.victims]
    # A joiner may end itself too: its generation was void after it had begun.
    killed = {member_id for member_id, end in exits.items() if end["signal"] == signal.SIGKILL}
    assert set(case.victims) <= killed
    assert lab.member_ids()[: len(survivors)] == survivors, "those that lived trained on in the same processes"
    assert all(end["code"] == 0 for member_id, end in exits.items() if member_id not in killed), lab.story()
    assert not killed & set(survivors)
    assert len(lab.started()) == case.grow + len(killed), "each that died was replaced once"
    assert not lab.journal("lost")
    assert_nothing_lost(lab, reference)
