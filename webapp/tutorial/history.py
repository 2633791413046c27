"""Leaves a history that is worth replaying: trainings that scale and trainings that do not, which come faster than they
end and share all GPUs by fair share. *What if* then shows what policy goodput would have made of them."""

import time
from pathlib import Path

from tidepool.client.api import Client

from webapp.tutorial.play import Tutorial

__all__ = ["COUNT", "KINDS", "PACED", "PAUSE_SECONDS", "leave_history"]

#: A training whose steps sleep: eight GPUs need no eight processors.
PACED = Path(__file__).parents[2] / "examples" / "paced"
#: Parameters of the two kinds. Four GPUs make the first 3.4 times as fast; the second is never faster than on one.
KINDS: dict[str, dict[str, float]] = {
    "scales": {"epochs": 14, "base": 0.01, "per-sample": 0.006, "sum": 0.01},
    "flat": {"epochs": 12, "base": 0.1, "per-sample": 0.001, "sum": 0.05},
}
COUNT, PAUSE_SECONDS = 6, 15.0
_NAME = "paced"


def leave_history(tutorial: Tutorial, client: Client) -> None:
    """Submit them, one after the other, once the tutorial has been played. They end by themselves."""
    api, say = tutorial.api, tutorial.say
    if all(model["name"] != _NAME for model in api.get("models/")["results"]):
        client.add_model(_NAME, PACED, engine="elastic", entry_point="train.py")
    say(f"{COUNT} more trainings come, one each {PAUSE_SECONDS:.0f} s: a history for What if.")
    for number in range(COUNT):
        if number:
            time.sleep(PAUSE_SECONDS)
        kind = list(KINDS)[number % len(KINDS)]
        asked = {"name": f"{kind}-{number + 1}", "model": _NAME, "instance_group": tutorial.instance_group}
        job = api.post("jobs/", {**asked, "min_slots": 1, "max_slots": tutorial.slots, "parameters": KINDS[kind]})
        say(f"Submitted {asked['name']} as training {job['id']}.")
