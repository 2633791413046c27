"""Options of a training, each declared once.

The fields of the Train page and of the API, the checks of limits, cloning, the new row and the launch specification are
derived from `OPTIONS`. A new option is a field of `Options`, a column of the same name in `jobs.models.Job` and, where
the runtime uses it, a field of the same name in `tidepool.protocol.LaunchSpec`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Final

from jobs.models import Job

__all__ = ["MASK", "MAX_PRIORITY", "OPTIONS", "Option", "Options", "masked", "option_values"]

#: Shown in place of a value that others may not read.
MASK: Final = "••••••"

MAX_PRIORITY: Final = 10_000
_MAX_INTEGER: Final = 2**31 - 1


@dataclass(frozen=True)
class Option:
    #: The option as sentences call it.
    words: str
    help: str
    #: The label on the Train page; "": only the API takes the option.
    label: str = ""
    unit: str = ""
    #: Limits of a whole number.
    least: int = 0
    most: int = _MAX_INTEGER
    #: Values with their labels, where the option is no number.
    choices: Sequence[tuple[str, str]] = ()
    #: It is names with values, which are shown masked.
    is_variables: bool = False
    #: It is a text of at most so many characters; 0: it is none.
    most_characters: int = 0
    #: The meaning of None, as the end of a sentence.
    absent: str = ""
    #: First value on the Train page, where that is not the default.
    initial: int | None = None
    #: Only a script with a session uses it: the Train page hides it for others.
    is_of_sessions: bool = False
    #: Whether `LaunchSpec` has a field of this name.
    is_launched: bool = False
    #: Filled in by `OPTIONS` from the field of `Options`.
    name: str = ""
    default: Any = None
    is_required: bool = False

    @property
    def limit(self) -> str:
        """Limit of a whole number; "" where the option is none."""
        if self.is_variables or self.most_characters:
            return ""
        return f"from {self.least} to {self.most}" if self.most < _MAX_INTEGER else f"of {self.least} or more"

    def help_with(self, absent: str) -> str:
        """The help and the meaning of None, which a form calls "Empty" and the API "Absent"."""
        return f"{self.help} {absent}: {self.absent}" if self.absent else self.help


def _option(words: str, help: str, *, default: Any = MISSING, **details: Any) -> Any:
    return field(default=default, metadata={"option": Option(words, help, **details)})


def _variables(words: str, help: str, **details: Any) -> Any:
    return field(default_factory=dict, metadata={"option": Option(words, help, is_variables=True, **details)})


@dataclass(frozen=True, kw_only=True)
class Options:
    """The values of a training's options."""

    min_slots: int = _option(
        "The least number of GPUs",
        "It waits until this many GPUs are free for it.",
        default=1,
        label="At least",
        unit="GPUs",
        least=1,
        is_launched=True,
    )
    max_slots: int = _option(
        "The most GPUs",
        "It grows up to this many while it trains, without stopping. WMLA: max number of workers.",
        label="At most",
        unit="GPUs",
        least=1,
        initial=8,
    )
    #: None: the instance group's default.
    priority: int | None = _option(
        "The priority",
        f"1 to {MAX_PRIORITY}. Twice the priority means twice the GPUs, where both want them.",
        default=None,
        label="Priority",
        least=1,
        most=MAX_PRIORITY,
        initial=5000,
    )
    max_seconds: int | None = _option(
        "The most seconds",
        "From a start on it holds GPUs so long at the most; then it stops with a checkpoint and is held back, until it "
        "is resumed. A script that saves nothing begins anew. With a limit it may start before larger ones that wait.",
        default=None,
        label="Time limit",
        unit="seconds",
        least=10,
        absent="without limit.",
    )
    exactness: str = _option(
        "The exactness",
        "What a resize may change. Each step takes the same samples in either, and none is lost.",
        default=Job.Exactness.SUM,
        label="Exactness",
        choices=(
            (Job.Exactness.SUM, "Sum: the fastest; its number of GPUs may show in the last digits"),
            (Job.Exactness.BITWISE, "Bitwise: on any number of GPUs the same bits as on one"),
        ),
        is_launched=True,
    )
    #: Of exactness bitwise only.
    virtual_ranks: int | None = _option(
        "The number of virtual ranks",
        "Parts that each step is computed in, for good; it can have no more GPUs than that.",
        default=None,
        label="Virtual ranks",
        least=1,
        most=1024,
        absent="the next power of two.",
        is_launched=True,
    )
    adaptive: str = _option(
        "Whether the batch may change",
        "A script with a session may ask for a batch that adapts to the noise of its gradients. Others never do.",
        default=Job.Adaptive.SCRIPT,
        label="May change the batch size",
        is_of_sessions=True,
        choices=(
            (Job.Adaptive.SCRIPT, "If its script asks for it"),
            (Job.Adaptive.OFF, "No: each step has as many samples as at the start"),
        ),
        is_launched=True,
    )
    autolog: str = _option(
        "Whether frameworks log by themselves",
        "Of a script without a session, where the site has MLflow: scikit-learn, XGBoost, transformers and Lightning "
        "log to the training's run by themselves.",
        default=Job.Autolog.ON,
        label="Frameworks log to MLflow",
        choices=(
            (Job.Autolog.ON, "By themselves"),
            (Job.Autolog.OFF, "Only what its script logs"),
        ),
        is_launched=True,
    )
    placement: str = _option(
        "The placement",
        "Of a script of fixed size: whether its GPUs may be on several hosts. Others move while they train.",
        default=Job.Placement.ANY,
        label="Its GPUs",
        choices=(
            (Job.Placement.ANY, "On as few hosts as there is room on"),
            (Job.Placement.ONE_HOST, "All on one host: it waits until one has room"),
        ),
    )
    effective_batch_size: int | None = _option(
        "The effective batch size",
        "Samples per step over all GPUs, however many there are.",
        default=None,
        least=1,
        absent="as the script says.",
        is_launched=True,
    )
    seed: int = _option(
        "The seed",
        "Of the order of samples and of random numbers in steps.",
        default=0,
        most=2**63 - 1,
        is_launched=True,
    )
    checkpoint_seconds: int | None = _option(
        "The seconds between checkpoints",
        "So much training is lost at most if every GPU fails at once. 0: none at all.",
        default=None,
        label="A checkpoint at least every",
        is_of_sessions=True,
        unit="seconds",
        absent="as the script says, or 60.",
        is_launched=True,
    )
    checkpoints_kept: int | None = _option(
        "The number of checkpoints that are kept",
        "The newest ones stay.",
        default=None,
        label="Checkpoints that are kept",
        is_of_sessions=True,
        least=1,
        most=1000,
        absent="as the script says, or 2.",
        is_launched=True,
    )
    log_pattern: str = _option(
        "The pattern of its log",
        "Of a script without a session: a regular expression (RE2) with named groups that reads its lines, such as "
        "step (?P<step>\\d+): loss (?P<loss>\\S+). The groups step, total_steps, epoch, total_epochs and percent say "
        "how far it is, name and value go together, each other one is a metric.",
        default="",
        label="Pattern of its log",
        most_characters=500,
        absent="lines are read in the usual ways.",
    )
    requirements: str = _option(
        "The requirements",
        "Packages beside those of the cluster, one per line, such as timm>=1.0. torch, numpy and tidepool stay as they "
        "are.",
        default="",
        label="Requirements",
        most_characters=10_000,
        is_launched=True,
        absent="those that the script states (PEP 723), or of a requirements.txt beside it.",
    )
    environment: Mapping[str, str] = _variables(
        "The environment variables",
        "Names with values, such as WANDB_MODE = offline. Values are masked on every page, but stored as they are: "
        "give no passwords here, a place for secrets comes later.",
        label="Environment variables",
    )


def _declared(column: Field[Any]) -> Option:
    option: Option = column.metadata["option"]
    is_required = column.default is MISSING and column.default_factory is MISSING
    factory = column.default_factory
    default = column.default if column.default is not MISSING else None if factory is MISSING else factory()
    return replace(option, name=column.name, default=default, is_required=is_required)


OPTIONS: Mapping[str, Option] = MappingProxyType({column.name: _declared(column) for column in fields(Options)})


def masked(variables: Mapping[str, str]) -> dict[str, str]:
    return dict.fromkeys(variables, MASK)


def option_values(row: Options | Job) -> dict[str, Any]:
    """The options of a submission or a job, by name."""
    return {name: getattr(row, name) for name in OPTIONS}
