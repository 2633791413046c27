"""Random cuts and heals of the machines of a `bitwise` training, compared with the same training undisturbed.

In each round one of three machines loses the network, never the shared folder, and comes back:

- any machine, for less time than others need to miss it;
- a member, until the others have made steps without it;
- the leading host, until it holds still;
- the leading host, until another one leads, and the others have made steps without it.

The control plane is played: it is out of the lead's reach, and has another host lead as soon as the former one holds
still. In service that takes TIDEPOOL_LEASE_SECONDS longer.
"""

import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.labs import HERE, laboratory, running
from benchmarks.results import Result, result
from benchmarks.soak import DEATHS_PER_SLOT, NO_LIMIT, STEPS_PER_EPOCH, comparison, set_pace, wait_for_the_end
from datasets.digits import write_digits
from tests.hosts.job import lab_over
from tests.hosts.machines import Network
from tests.runtime.lab import Lab
from tests.waiting import wait_until

__all__ = ["SIZE", "cut_at_random"]

SIZE = 3
#: Longest cut that nobody misses, in seconds: a host counts as gone after 6.
GLITCH_SECONDS = 3.0
#: Most steps that are made between a heal and the next cut, and while a machine is cut off.
MOST_STEPS = 6
#: Steps of the training for each cut, on average: more than are made before the last one.
STEPS_PER_CUT = 46


@dataclass
class _Rounds:
    lab: Lab
    network: Network
    dice: random.Random
    lead: str = "gpu1"
    kinds: Counter[str] = field(default_factory=Counter)
    #: Seconds from a cut until the others' next step, by the kind of cut.
    stood: dict[str, list[float]] = field(default_factory=dict)
    #: Ranks that have been replaced, by machine.
    _deaths: Counter[str] = field(default_factory=Counter)

    def play(self, count: int) -> None:
        kinds: dict[str, Callable[[], str | None]] = {
            "glitch": self._glitch,
            "member": self._cut_member,
            "lead, healed": self._cut_lead,
            "lead, replaced": self._replace_lead,
        }
        for number in range(count):
            self._train_on(SIZE)
            kind = self.dice.choice([*kinds])
            self.kinds[kind] += 1
            print(f"cut {number + 1} of {count}: {kind}, step {self._made()}", file=sys.stderr, flush=True)
            if died := kinds[kind]():
                self._give_back(died)
            assert not self.lab.journal("lost"), self.lab.story()
        self._train_on(SIZE)

    # Each of these returns the machine whose rank has been replaced, if one has.

    def _glitch(self) -> None:
        self.network.cut_off(self.dice.choice([*self.lab.sizes]))
        time.sleep(self.dice.uniform(0.0, GLITCH_SECONDS))
        self.network.heal()

    def _cut_member(self) -> str:
        name = self.dice.choice([name for name in self.lab.sizes if name != self.lead])
        begun = time.monotonic()
        self.network.cut_off(name)
        self._note("a member is cut off, until the others' next step", begun)
        self.network.heal()
        return name

    def _cut_lead(self) -> None:
        self._hold_still()
        self.network.heal()

    def _replace_lead(self) -> str:
        former = self.lead
        self._hold_still()
        self.lead = self.dice.choice([name for name in self.lab.sizes if name != former])
        begun = time.monotonic()
        self.lab.start_coordinator(f"lead-{self.lab.lead_number + 1}", host=self.lead)
        self._note("another host is told to lead, until the others' next step", begun)
        self.network.heal()
        return former

    def _hold_still(self) -> None:
        before = len(self.lab.journal("held_still"))
        self.network.cut_off(self.lead)
        wait_until(lambda: len(self.lab.journal("held_still")) > before, self.lab.story)

    def _note(self, name: str, begun: float) -> None:
        """Wait until the others have made steps, and note when the first one came."""
        wait_until(lambda: self.lab.steps()[-1]["world_size"] == SIZE - 1, self.lab.story)
        self.stood.setdefault(name, []).append(time.monotonic() - begun)
        self._train_on(SIZE - 1)

    def _train_on(self, size: int) -> None:
        """Wait until so many ranks train, and for a few more steps."""
        self.lab.wait_for_size(size)
        goal = self._made() + self.dice.randint(1, MOST_STEPS)
        set_pace(self.lab, goal)
        wait_until(lambda: self._made() >= goal, self.lab.story)
        assert not self.lab.journal("finished"), "the training was over before its cuts: its pace is too quick"

    def _made(self) -> int:
        return len(self.lab.steps())

    def _give_back(self, name: str) -> None:
        self._deaths[name] += 1
        if self._deaths[name] % DEATHS_PER_SLOT == 0:
            self._train_on(SIZE)
            places = [(host, 0) for host in self.lab.sizes]
            self.lab.target(*[place for place in places if place[0] != name])
            self.lab.wait_for_size(SIZE - 1)
            self.lab.target(*places)
            self.lab.wait_for_size(SIZE)


def cut_at_random(network: Network, count: int, seed: int) -> list[Result]:
    """Return what `count` cuts did to a training on these three machines."""
    print(f"{count} cuts, seed {seed}", file=sys.stderr, flush=True)
    launch = {"exactness": "bitwise", "virtual_ranks": 4, "min_slots": 1}
    epochs = max(2, count * STEPS_PER_CUT // STEPS_PER_EPOCH)
    with laboratory() as (forkserver, folder):
        data = network.shared / "digits"
        write_digits(data)
        script = {"arguments": [str(epochs), "noisy"], "data_dir": str(data), "code_folder": str(HERE)}
        undisturbed = running(forkserver, folder, "soaked.py", epochs, "noisy", slots=1, data_dir=str(data), **launch)
        with lab_over(network, "soaked.py", **script, **launch) as lab, undisturbed as alone:
            set_pace(alone, NO_LIMIT)
            alone.size(1)
            set_pace(lab, 0)
            lab.heard_at = time.monotonic()  # and never again
            lab.size(SIZE)
            rounds = _Rounds(lab, network, random.Random(seed))
            rounds.play(count)
            set_pace(lab, NO_LIMIT)
            wait_for_the_end(lab)
            wait_for_the_end(alone)
            return [*_counts(rounds), *comparison(lab, alone, data, "bitwise")]


def _counts(rounds: _Rounds) -> list[Result]:
    steps = Counter(record["step"] for record in rounds.lab.steps())
    numbers = Counter(entry["generation"] for entry in rounds.lab.journal("generation_planned"))
    figures = {
        **{f"cuts: {kind}": count for kind, count in sorted(rounds.kinds.items())},
        "steps": len(steps),
        "steps lost": max(steps) - len(steps),
        "steps done twice": steps.total() - len(steps),
        "numbers of generations used twice": numbers.total() - len(numbers),
        "times that it began again": len(rounds.lab.journal("lost")),
    }
    counts = [result(name, "", [value]) for name, value in figures.items()]
    return [*counts, *(result(name, "s", values) for name, values in rounds.stood.items())]
