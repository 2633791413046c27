"""Options of a training, each declared once.

The fields of the Train page and of the API, the checks of limits, the clone, the row, what reaches a host, the table of
settings on the page of a job, comparisons and MLflow's parameters are derived from `OPTIONS`.

A new option is a field of `Options` and a column of the same name in `OptionColumns`. An option that the runtime acts
on is a field of the same name in `tidepool.protocol` as well, of `LaunchSpec` or of `DesiredJob`.
"""

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields, replace
from types import MappingProxyType
from typing import Any, Final

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import ExpressionWrapper, Q
from tidepool.protocol import KEPT_CHECKPOINTS, STALL_SECONDS

from jobs.option import Option, option, variables
from jobs.option_words import between_checkpoints, gib_words, number_words, stopped_after, wish_of
from models_registry.models import RegisteredModelVersion
from scheduling.snapshot import Share

__all__ = [
    "IS_BITWISE",
    "MASK",
    "MAX_PRIORITY",
    "OPTIONS",
    "Option",
    "OptionColumns",
    "Options",
    "engine_of",
    "masked",
    "option_values",
    "options_of_validation",
    "requested_values",
    "takes_several",
]

#: Column of a query: whether the results of a job depend on the model of its GPUs.
IS_BITWISE: Final = ExpressionWrapper(Q(exactness="bitwise"), output_field=models.BooleanField())

#: Mask for values that others may not read.
MASK: Final = "••••••"

MAX_PRIORITY: Final = 10_000


class OptionColumns(models.Model):
    """Columns of a job's options."""

    class Exactness(models.TextChoices):
        SUM = "sum"
        BITWISE = "bitwise"

    class Adaptive(models.TextChoices):
        """Whether the effective batch size may change."""

        SCRIPT = "script"
        OFF = "off"

    class Autolog(models.TextChoices):
        """Whether frameworks log to MLflow automatically."""

        ON = "on"
        OFF = "off"

    class Placement(models.TextChoices):
        """Whether the slots may be on several hosts."""

        SCRIPT = "script"
        ANY = "any"
        EQUAL = "equal"
        ONE_HOST = "one_host"

    class GpusPerProcess(models.TextChoices):
        """Number of GPUs that each process of a script without a session uses."""

        SCRIPT = "script"
        ONE = "one"
        ALL = "all"

    min_slots = models.PositiveIntegerField(default=1)
    max_slots = models.PositiveIntegerField()
    priority = models.PositiveIntegerField(
        default=5000, validators=[MinValueValidator(1), MaxValueValidator(MAX_PRIORITY)]
    )
    max_seconds = models.PositiveIntegerField(null=True, blank=True)
    exactness = models.CharField(max_length=16, choices=Exactness, default=Exactness.SUM)
    virtual_ranks = models.PositiveIntegerField(null=True, blank=True)
    adaptive = models.CharField(max_length=16, choices=Adaptive, default=Adaptive.SCRIPT)
    autolog = models.CharField(max_length=16, choices=Autolog, default=Autolog.ON)
    placement = models.CharField(max_length=16, choices=Placement, default=Placement.ANY)
    gpus_per_process = models.CharField(max_length=16, choices=GpusPerProcess, default=GpusPerProcess.SCRIPT)
    cpus_per_gpu = models.PositiveIntegerField(null=True, blank=True)
    memory_gib_per_gpu = models.PositiveIntegerField(null=True, blank=True)
    effective_batch_size = models.PositiveIntegerField(null=True, blank=True)
    seed = models.PositiveBigIntegerField(default=0)
    checkpoint_seconds = models.PositiveIntegerField(null=True, blank=True)
    checkpoints_kept = models.PositiveIntegerField(null=True, blank=True)
    stall_seconds = models.PositiveIntegerField(null=True, blank=True)
    log_pattern = models.CharField(max_length=500, blank=True, default="")
    named_environment = models.CharField(max_length=64, blank=True, default="")
    requirements = models.TextField(blank=True, default="")
    environment = models.JSONField(default=dict)
    secrets = models.CharField(max_length=2600, blank=True, default="", db_default="")

    class Meta:
        abstract = True

    @property
    def is_bitwise(self) -> bool:
        return self.exactness == self.Exactness.BITWISE

    @property
    def wish(self) -> Share | None:
        """Cores and memory that it asks for with each GPU; None: the share of a slot."""
        return wish_of(self.cpus_per_gpu, self.memory_gib_per_gpu)

    @property
    def samples_per_step(self) -> int | None:
        """Samples per step over all ranks; None: the script decides."""
        return self.effective_batch_size

    @property
    def most_checkpoints(self) -> int:
        """Number of checkpoints that stay on disk, in addition to those that users keep."""
        return self.checkpoints_kept or KEPT_CHECKPOINTS


@dataclass(frozen=True, kw_only=True)
class Options:
    """The values of a training's options."""

    min_slots: int = option(
        "The minimum number of GPUs",
        "The training waits until this many GPUs are free.",
        default=1,
        label="At least",
        unit="GPUs",
        least=1,
        is_launched=True,
        title="Minimum GPUs",
        shapes_results=True,
        is_placed=True,
    )
    max_slots: int = option(
        "The maximum number of GPUs",
        "The training grows up to this many GPUs without stopping. WMLA: max number of workers.",
        label="At most",
        unit="GPUs",
        least=1,
        initial=8,
        title="Maximum GPUs",
        shapes_results=True,
        is_placed=True,
    )
    #: Priority from 1 to MAX_PRIORITY; None: the instance group's default.
    priority: int | None = option(
        "The priority",
        f"1 to {MAX_PRIORITY:,}. Under fair share, twice the priority means twice the GPUs.",
        default=None,
        label="Priority",
        least=1,
        most=MAX_PRIORITY,
        initial=5000,
        is_placed=True,
    )
    max_seconds: int | None = option(
        "The time limit in seconds",
        "Longest time that the training may hold GPUs after each start. The training then stops with a checkpoint and "
        "stays suspended until you resume it; a script without checkpoints starts over. With a limit, the training may "
        "start before larger ones that wait.",
        default=None,
        label="Time limit",
        unit="seconds",
        least=10,
        absent="no limit.",
    )
    exactness: str = option(
        "The exactness",
        "Effect of a resize on the results. In both cases, each step uses the same samples, and none is lost.",
        default=OptionColumns.Exactness.SUM,
        label="Exactness",
        choices=(
            (OptionColumns.Exactness.SUM, "Sum: fast; the last digits may depend on the number of GPUs"),
            (OptionColumns.Exactness.BITWISE, "Bitwise: the same bits on any number of GPUs"),
        ),
        is_launched=True,
        shapes_results=True,
        shown=str,
        is_placed=True,
    )
    #: Only for exactness bitwise.
    virtual_ranks: int | None = option(
        "The number of virtual ranks",
        "Number of parts that each step is divided into. It is fixed, and limits the number of GPUs.",
        default=None,
        label="Virtual ranks",
        least=1,
        most=1024,
        absent="the next power of two.",
        is_launched=True,
        shapes_results=True,
        shown=number_words,
        is_placed=True,
    )
    adaptive: str = option(
        "Adaptive batch size",
        "A script with a session may request a batch size that adapts to the noise of its gradients.",
        default=OptionColumns.Adaptive.SCRIPT,
        label="Adaptive batch size",
        is_of_sessions=True,
        choices=(
            (OptionColumns.Adaptive.SCRIPT, "If the script requests it"),
            (OptionColumns.Adaptive.OFF, "Off: the number of samples per step does not change"),
        ),
        is_launched=True,
        title="Adaptive batch",
        shapes_results=True,
        shown={"off": "off"}.get,
    )
    autolog: str = option(
        "Automatic logging",
        "For a script without a session, if the site has MLflow: scikit-learn, XGBoost, transformers and Lightning "
        "log to the training's run automatically.",
        default=OptionColumns.Autolog.ON,
        label="Automatic logging to MLflow",
        choices=(
            (OptionColumns.Autolog.ON, "Automatically"),
            (OptionColumns.Autolog.OFF, "Off: only the script's own logging"),
        ),
        is_launched=True,
        title="MLflow",
        shown={"off": "only the script's own logging"}.get,
    )
    placement: str = option(
        "The placement",
        "Hosts of a fixed-size training. Elastic trainings move between hosts while they train. Some scripts, such as "
        "Lightning's, need as many processes on each host: they are placed on one host, or on hosts with equal "
        "numbers if no host is large enough.",
        default=OptionColumns.Placement.SCRIPT,
        label="Placement of GPUs",
        choices=(
            (OptionColumns.Placement.SCRIPT, "As the script needs"),
            (OptionColumns.Placement.ANY, "On as few hosts as possible"),
            (OptionColumns.Placement.EQUAL, "Equal numbers on hosts: the training waits until that is possible"),
            (OptionColumns.Placement.ONE_HOST, "All on one host: the training waits until a host has enough free GPUs"),
        ),
        title="GPUs",
        shown={"one_host": "all on one host", "equal": "as many on each host"}.get,
    )
    gpus_per_process: str = option(
        "The GPUs per process",
        "For a script without a session. With one GPU per process, as many processes start as the training has GPUs, "
        "with the variables that torchrun sets. With all GPUs in one process, the script is started once, on one host; "
        "it uses the GPUs itself, or starts its own processes.",
        default=OptionColumns.GpusPerProcess.SCRIPT,
        label="GPUs per process",
        choices=(
            (OptionColumns.GpusPerProcess.SCRIPT, "As the code shows"),
            (OptionColumns.GpusPerProcess.ONE, "One: a process on each GPU, as torchrun starts them"),
            (OptionColumns.GpusPerProcess.ALL, "All: one process with all GPUs of the training, on one host"),
        ),
        title="GPUs per process",
        shown={"one": "one", "all": "all: one process"}.get,
        is_placed=True,
    )
    cpus_per_gpu: int | None = option(
        "The number of cores per GPU",
        "Cores of the host for each GPU. A GPU with more than its share of a host counts as several GPUs.",
        default=None,
        label="Cores per GPU",
        unit="cores",
        least=1,
        most=4096,
        absent="the GPU's share of its host.",
        is_launched=True,
        shown=number_words,
    )
    memory_gib_per_gpu: int | None = option(
        "The memory per GPU",
        "Memory of the host for each GPU, in GiB; the GPU's own is not meant. A GPU with more than its share of a host "
        "counts as several GPUs.",
        default=None,
        label="Memory per GPU",
        unit="GiB",
        least=1,
        most=65_536,
        absent="the GPU's share of its host.",
        is_launched=True,
        shown=gib_words,
    )
    effective_batch_size: int | None = option(
        "The effective batch size",
        "Samples per step over all GPUs, independent of their number.",
        default=None,
        least=1,
        absent="the script's own value.",
        is_launched=True,
        title="Effective batch size",
        shapes_results=True,
        shown=number_words,
    )
    seed: int = option(
        "The seed",
        "Seed of the order of samples and of the random numbers in steps.",
        default=0,
        most=2**63 - 1,
        is_launched=True,
        title="Seed",
        shapes_results=True,
        shown=number_words,
    )
    checkpoint_seconds: int | None = option(
        "The seconds between checkpoints",
        "Longest training time that is lost if every GPU fails at once. 0: no checkpoints.",
        default=None,
        label="Checkpoint interval",
        is_of_sessions=True,
        unit="seconds",
        absent="the script's own value, or 60.",
        is_launched=True,
        title="Checkpoints",
        shown=between_checkpoints,
    )
    checkpoints_kept: int | None = option(
        "The number of checkpoints that are kept",
        "Older checkpoints are deleted.",
        default=None,
        label="Checkpoints to keep",
        is_of_sessions=True,
        least=1,
        most=1000,
        absent="the script's own value, or 2.",
        is_launched=True,
        title="Checkpoints kept",
        shown=number_words,
    )
    stall_seconds: int | None = option(
        "The deadline for a step",
        "Longest time without a step, an evaluation included. A training that makes none for longer is stopped, with "
        "the stack of each process in its log.",
        default=None,
        label="Deadline for a step",
        is_of_sessions=True,
        unit="seconds",
        least=10,
        absent=f"{STALL_SECONDS:g}.",
        is_launched=True,
        shown=stopped_after,
    )
    log_pattern: str = option(
        "The log pattern",
        "For a script without a session: a regular expression (RE2) with named groups for the lines of the log, "
        "such as step (?P<step>\\d+): loss (?P<loss>\\S+). The groups step, total_steps, epoch, total_epochs and "
        "percent give the progress, name and value together give a metric, and so does each other group.",
        default="",
        label="Log pattern",
        most_characters=500,
        absent="lines are parsed with the default patterns.",
        is_desired=True,
        is_pattern=True,
    )
    named_environment: str = option(
        "The environment",
        "Packages that an administrator has put together under a name, instead of what the code requires.",
        default="",
        label="Environment",
        most_characters=64,
        absent="what the code requires or, if it requires nothing, the default of the instance group.",
        shown=str,
        is_placed=True,
        shapes_results=True,
    )
    requirements: str = option(
        "The requirements",
        "Packages in addition to the cluster's, one per line, such as timm>=1.0. torch, numpy and tidepool cannot be "
        "replaced.",
        default="",
        label="Requirements",
        most_characters=100_000,
        is_launched=True,
        absent="those that the script declares (PEP 723), or those of a requirements.txt beside it.",
    )
    environment: Mapping[str, str] = variables(
        "The environment variables",
        "Names with values, such as WANDB_MODE = offline. Values are masked on every page, but stored in plain text: "
        "for passwords and tokens there are secrets.",
        label="Environment variables",
    )
    secrets: str = option(
        "The secrets",
        "Names of secrets, yours or the instance group's, that its processes get as variables. Logs mask the values.",
        default="",
        label="Secrets",
        most_characters=2600,
        absent="none. Spaces separate several names.",
        shown=str,
        is_placed=True,
    )

    @property
    def wish(self) -> Share | None:
        """Cores and memory that it asks for with each GPU; None: the share of a slot."""
        return wish_of(self.cpus_per_gpu, self.memory_gib_per_gpu)

    @property
    def is_bitwise(self) -> bool:
        return self.exactness == OptionColumns.Exactness.BITWISE

    @property
    def on_one_host(self) -> bool:
        return self.placement == OptionColumns.Placement.ONE_HOST

    @property
    def on_equal_hosts(self) -> bool:
        return self.placement == OptionColumns.Placement.EQUAL


def _declared(column: Field[Any]) -> Option:
    option: Option = column.metadata["option"]
    is_required = column.default is MISSING and column.default_factory is MISSING
    factory = column.default_factory
    default = column.default if column.default is not MISSING else None if factory is MISSING else factory()
    return replace(option, name=column.name, default=default, is_required=is_required)


OPTIONS: Mapping[str, Option] = MappingProxyType({column.name: _declared(column) for column in fields(Options)})


def engine_of(model: RegisteredModelVersion, gpus_per_process: str) -> str:
    """Return the engine of a training of the model with this option."""
    if model.engine == RegisteredModelVersion.Engine.ELASTIC:
        return model.engine
    chosen = {"one": RegisteredModelVersion.Engine.FIXED, "all": RegisteredModelVersion.Engine.SINGLE}
    return chosen.get(gpus_per_process, model.engine)


def takes_several(model: RegisteredModelVersion, gpus_per_process: str) -> bool:
    """Return whether a training of the model with this option may have several GPUs."""
    is_single = engine_of(model, gpus_per_process) == RegisteredModelVersion.Engine.SINGLE
    return not is_single or model.declared.uses_several_gpus or gpus_per_process == OptionColumns.GpusPerProcess.ALL


def masked(variables: Mapping[str, str]) -> dict[str, str]:
    return dict.fromkeys(variables, MASK)


def option_values(row: "Options | OptionColumns") -> dict[str, Any]:
    """Return the options of a submission or a job, by name."""
    return {name: getattr(row, name) for name in OPTIONS}


def requested_values(row: "Options | OptionColumns") -> dict[str, Any]:
    """Return the options by name as they may be requested again: a named environment supplies its requirements."""
    return option_values(row) | ({"requirements": ""} if row.named_environment else {})


def options_of_validation(trained: OptionColumns) -> dict[str, Any]:
    """Return the options of a run that evaluates the weights of a training, on one GPU and without checkpoints."""
    values = requested_values(trained)
    kept = ("seed", "effective_batch_size", "named_environment", "requirements", "secrets")
    same = {name: values[name] for name in kept}
    return {**same, "max_slots": 1, "checkpoint_seconds": 0}
