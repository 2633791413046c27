"""TorchDistributor: a function or script in several processes of the cluster, by the contract of pyspark's class.

    best = TorchDistributor(num_processes=4, local_mode=False, use_gpu=True).run(train, 0.01)

What it gives beyond pyspark's stands in docs/user/distributor.md.
"""

import logging
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TextIO

from tidepool.client.api import Client
from tidepool.client.errors import Unreachable
from tidepool.client.following import Change, Follower
from tidepool.client.functions import submit_function
from tidepool.client.patience import Patience
from tidepool.client.rows import JobInfo, LogLine
from tidepool.client.training import Job

__all__ = ["TorchDistributor"]

_HIDDEN = {"CUDA_VISIBLE_DEVICES": ""}

Work = Callable[..., Any] | str | os.PathLike[str]


class TorchDistributor:
    """Runs functions and scripts in `num_processes` processes, one for each GPU unless `use_gpu` is False.

    local_mode: all on one host, for which it waits; an elastic one may be on several. use_gpu: False runs the processes
    on the CPUs of one host, as many as wanted; an elastic training has a GPU for each, which is hidden. elastic: the
    function uses a `Session`, and gets between `min_processes` and `num_processes` GPUs; else it has all of them from
    its start to its end, finds torchrun's variables, and starts from nothing where it had to be stopped. Raises
    ValueError for numbers that cannot be, NotLoggedIn and Unreachable.
    """

    def __init__(
        self,
        num_processes: int = 1,
        local_mode: bool = True,
        use_gpu: bool = True,
        *,
        name: str | None = None,
        min_processes: int | None = None,
        priority: int | None = None,
        instance_group: str | None = None,
        dataset: str | None = None,
        requirements: str | Sequence[str] = (),
        elastic: bool = False,
        client: Client | None = None,
        **options: Any,
    ) -> None:
        _check(num_processes, min_processes)
        self.logger = _logger()
        self.client = client or Client()
        self.local_mode, self.use_gpu = local_mode, use_gpu
        self.elastic = elastic or min_processes is not None
        #: Whether the processes run on the CPUs of one host, and the training holds one GPU for all of them.
        self.on_cpus = not use_gpu and not self.elastic and num_processes > 1
        self.num_processes = num_processes if self.on_cpus else self._at_most(num_processes, instance_group)
        self.min_processes = min(min_processes or 1, self.num_processes)
        self.num_tasks = self.num_processes
        self.input_params = {
            "num_processes": self.num_processes,
            "num_tasks": self.num_tasks,
            "local_mode": local_mode,
            "use_gpu": use_gpu,
        }
        if local_mode and not self.elastic and not self.on_cpus and self.num_processes > 1:
            options.setdefault("placement", "one_host")
        if not use_gpu:
            held = "one GPU for all processes, which run on the CPUs of its host" if self.on_cpus else "its GPUs"
            self.logger.warning("use_gpu=False: the training holds %s, hidden from it.", held)
            options["environment"] = {**options.get("environment", {}), **_HIDDEN}
        wanted = requirements if isinstance(requirements, str) else "\n".join(requirements)
        given = {"name": name, "priority": priority, "instance_group": instance_group, "dataset": dataset}
        self._given: dict[str, Any] = {**given, **({"requirements": wanted} if wanted else {}), **options}

    def run(self, train_object: Work, *args: Any, **kwargs: Any) -> Any:
        """Run it, show what rank 0 prints, and return what rank 0 returns; None of a script.

        It waits for the training's end even if the site does not answer, however long. train_object: a callable, or
        the path of a script, whose arguments are made text. Ctrl-C cancels the training; a second one leaves it to its
        end. Raises JobFailed with the traceback of the rank that failed.
        """
        job = self.submit(train_object, *args, **kwargs)
        self.logger.info("job %s: %s", job.id, job.url)
        try:
            _Watch(self, job).follow()
        except KeyboardInterrupt:
            self._cancel(job)
            raise
        value = job.value()
        self.logger.info("Finished %s", self.described)
        return value

    def submit(self, train_object: Work, *args: Any, **kwargs: Any) -> Job:
        """The same without waiting: `job.value()` gives the value, here or elsewhere."""
        most, given = self.num_processes, self._given
        if callable(train_object):
            how: dict[str, Any] = {"elastic": self.elastic, "as_torchrun": True, "min_processes": self.min_processes}
            how["on_cpus"] = self.on_cpus
            return submit_function(self.client, train_object, args, kwargs, processes=most, **how, **given)
        if not isinstance(train_object, str | os.PathLike):
            raise TypeError(f"{train_object!r} is neither a function nor the path of a script: give one of them.")
        if kwargs:
            raise ValueError(
                f"A script takes no keyword arguments ({', '.join(kwargs)}): give words, such as '--epochs', '3'."
            )
        engine, least = ("elastic", self.min_processes) if self.elastic else ("fixed", most)
        path, words = os.fspath(train_object), [str(word) for word in args]
        if self.on_cpus:
            return self._submit_on_cpus(path, words)
        job: Job = self.client.submit(path, *words, engine=engine, min_slots=least, max_slots=most, **given)
        return job

    def _submit_on_cpus(self, path: str, words: list[str]) -> Job:
        # Not loaded by those who send functions.
        from tidepool.client.pack import on_cpus, package

        code = package(path, self._given.get("include", ()))
        if not code.entry_point:
            raise ValueError(f"{path} is a folder: give the script in it.")
        with on_cpus(code, self.num_processes) as launched:
            job: Job = self.client.submit(launched, *words, engine="single", min_slots=1, max_slots=1, **self._given)
        return job

    @property
    def described(self) -> str:
        """Describe the code that is run, in the format of pyspark's log lines."""
        kind, processes = ("local", "processes") if self.local_mode else ("distributed", "executor processes")
        return f"{kind} training with {self.num_processes} {processes}"

    def _at_most(self, wanted: int, instance_group: str | None) -> int:
        """Return the most GPUs that the group can give, or in local mode one host of it."""
        there = self.client.capacity(instance_group, one_host=self.local_mode)
        place = "one host of the instance group has (local_mode)" if self.local_mode else "the instance group has"
        if not 0 < there < wanted:
            return wanted
        self.logger.warning("num_processes was lowered from %d to %d: more than %s.", wanted, there, place)
        return there

    def _cancel(self, job: Job) -> None:
        try:
            job.cancel()
        except Unreachable as error:
            self.logger.warning(
                "Training %s is not cancelled: %s `tidepool.job(%s).value()` waits again, and "
                "`tidepool.job(%s).cancel()` cancels it.",
                *(job.id, error, job.id, job.id),
            )
            return
        self.logger.warning("Training %s is being cancelled. Ctrl-C again leaves it to that.", job.id)
        job.wait(check=False)
        self.logger.warning("Training %s is %s.", job.id, job.state)


@dataclass
class _Watch:
    """Shows a job's lines and what becomes of it, whatever becomes of the connection."""

    distributor: TorchDistributor
    job: Job
    #: Attempt and member whose log was shown last.
    place: tuple[int, str] | None = None
    shown: set[tuple[int | None, str]] = field(default_factory=set)
    has_started: bool = False

    @cached_property
    def patience(self) -> Patience:
        return self.job.patience(say=self.distributor.logger.warning)

    def follow(self) -> None:
        """Follow the job until its end."""
        follower = Follower(self.distributor.client.connection, self.job.id, rank=0)
        for change in follower.changes_through_outages(self.patience):
            self._show(change)

    def _show(self, change: Change) -> None:
        if isinstance(change, JobInfo):
            self._look(change)
        elif isinstance(change, LogLine):
            self._say_started()
            place = change.attempt, change.member
            if self.place not in (None, place):
                self.distributor.logger.info("--- attempt %d, %s ---", *place)
            self.place = place
            sys.stdout.write(f"{change.text}\n")
            sys.stdout.flush()

    def _look(self, info: JobInfo) -> None:
        self.job.learn(info)
        if info.hold_up:
            waits = "is stopped" if info.state == "PREEMPTING" else "waits"
            self._say_once(f"job {info.id} {waits}: {info.hold_up}", info.attempt)
        elif info.slots or info.is_over:
            self._say_started()

    def _say_started(self) -> None:
        if self.has_started:
            return
        self.has_started = True
        self.distributor.logger.info("Started %s", self.distributor.described)
        if self.distributor.local_mode and self.distributor.elastic:
            hosts = sorted({row["host"] for row in self.patience.call(self.job.ranks)})
            if len(hosts) > 1:
                self.distributor.logger.warning(
                    "local_mode: an elastic training takes GPUs where they are free, and this one is on %s.",
                    " and ".join(hosts),
                )

    def _say_once(self, words: str, attempt: int | None = None) -> None:
        """attempt: once in each."""
        if (attempt, words) not in self.shown:
            self.shown.add((attempt, words))
            self.distributor.logger.info("%s", words)


def _check(num_processes: int, min_processes: int | None) -> None:
    for name, value in (("num_processes", num_processes), ("min_processes", min_processes)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value <= 0):
            raise ValueError(f"{name} has to be a positive integer, not {value!r}")
    if min_processes is not None and min_processes > num_processes:
        raise ValueError(f"min_processes ({min_processes}) is more than num_processes ({num_processes})")


def _logger() -> logging.Logger:
    """Shown also where nobody has set up logging, as pyspark's is."""
    logger = logging.getLogger("TorchDistributor")
    logger.setLevel(logging.INFO)
    if not logger.handlers:
        logger.addHandler(_Shown())
    return logger


class _Shown(logging.StreamHandler[TextIO]):
    """Shows lines where nobody has set up logging; otherwise the root logger's handlers show them."""

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            super().emit(record)
