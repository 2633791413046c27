"""The learning-rate schedules that `pth_parameter_mgr` has made, by optimizer: `FabricModel` steps them."""

from weakref import WeakKeyDictionary

import torch
from torch.optim import lr_scheduler

__all__ = ["Schedule", "follow", "keep", "needs_results", "schedule_of"]

Schedule = lr_scheduler.LRScheduler | lr_scheduler.ReduceLROnPlateau

#: One per optimizer, however often it is asked for.
_schedules: WeakKeyDictionary[torch.optim.Optimizer, Schedule] = WeakKeyDictionary()


def keep(optimizer: torch.optim.Optimizer, schedule: Schedule) -> Schedule:
    _schedules[optimizer] = schedule
    return schedule


def schedule_of(optimizer: torch.optim.Optimizer) -> Schedule | None:
    """Return the schedule that was made for this optimizer; None for one that is the script's own."""
    return _schedules.get(optimizer)


def needs_results(schedule: Schedule | None) -> bool:
    return isinstance(schedule, lr_scheduler.ReduceLROnPlateau)


def follow(schedule: Schedule | None, results: dict[str, float]) -> None:
    """The learning rate of the next epoch, by the policy of the model's form."""
    if isinstance(schedule, lr_scheduler.ReduceLROnPlateau):
        if results:
            schedule.step(results["loss"])
    elif schedule is not None:
        schedule.step()
