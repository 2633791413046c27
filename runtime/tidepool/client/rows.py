"""Answers of the REST API as frozen dataclasses. scripts/client-rows writes this file from the OpenAPI schema."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tidepool.client.derived import JobProperties, LogLine

__all__ = [
    "Checkpoint",
    "Dataset",
    "Event",
    "JobInfo",
    "LogLine",
    "MetricPoint",
    "Model",
    "Reason",
    "Remedy",
    "ResultFile",
    "Script",
    "StudyInfo",
    "Term",
    "TrialInfo",
    "Why",
]


@dataclass(frozen=True, kw_only=True)
class Reason:
    """`ReasonOutput` of the REST API."""

    code: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class JobInfo(JobProperties):
    """`JobInLine` of the REST API."""

    id: int = 0
    name: str = ""
    owner: str = ""
    model: str = ""
    #: "": the script reads none.
    dataset: str = ""
    instance_group: str = ""
    #: Values: PENDING, STARTING, RUNNING, PREEMPTING, CANCELLING, SUSPENDED, SUCCEEDED, FAILED, CANCELLED.
    state: str = ""
    reason: Reason
    min_slots: int = 0
    max_slots: int = 0
    #: Current world size.
    slots: int = 0
    #: World size that it is to have.
    target_slots: int = 0
    priority: int = 0
    attempt: int = 0
    generation: int = 0
    step: int = 0
    epoch: int = 0
    #: 0 to 1; null: unknown.
    progress: float | None = None
    final_metrics: Mapping[str, Any] = field(default_factory=dict)
    #: Digest of the value that a function returned, as the site read it when the training succeeded. Empty: it left
    #: none; null: not known.
    value_sha256: str | None = None
    #: For scripts without a session: metric -> `{kind, where}` of its source; kind is log, csv, json or tensorboard,
    #: and where the stream or file.
    curve_sources: Mapping[str, Any] = field(default_factory=dict)
    #: Parts of the metrics that the curves lack: `names`, number of metrics of a step that were left out; `gaps`, true
    #: if points were written faster than they could be read.
    curve_limits: Mapping[str, Any] = field(default_factory=dict)
    #: Keys: kind, message, traceback, tried, memory.
    error: Mapping[str, Any] | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    #: End by the time limit; null without one, or without GPUs.
    ends_at: datetime | None = None
    submitted_at: datetime
    tags: Sequence[str] = ()
    #: Position of a waiting job; 1 is the next of its group to start.
    queue_position: int | None = None
    #: When a waiting job starts if no other is submitted; null: unknown. Keys: earliest, latest.
    expected_start: Mapping[str, Any] | None = None
    #: Longest time that the training may hold GPUs after each start. The training then stops with a checkpoint and
    #: stays suspended until you resume it; a script without checkpoints starts over. With a limit, the training may
    #: start before larger ones that wait.
    max_seconds: int | None = None
    #: Effect of a resize on the results. In both cases, each step uses the same samples, and none is lost. Values: sum,
    #: bitwise.
    exactness: str = ""
    #: Number of parts that each step is divided into. It is fixed, and limits the number of GPUs.
    virtual_ranks: int | None = None
    #: A script with a session may request a batch size that adapts to the noise of its gradients. Values: script, off.
    adaptive: str = ""
    #: For a script without a session, if the site has MLflow: scikit-learn, XGBoost, transformers and Lightning log to
    #: the training's run automatically. Values: on, off.
    autolog: str = ""
    #: Hosts of a fixed-size training. Elastic trainings move between hosts while they train. Some scripts, such as
    #: Lightning's, need as many processes on each host: they are placed on one host, or on hosts with equal numbers if
    #: no host is large enough. Values: script, any, equal, one_host.
    placement: str = ""
    #: For a script without a session. With one GPU per process, as many processes start as the training has GPUs, with
    #: the variables that torchrun sets. With all GPUs in one process, the script is started once, on one host; it uses
    #: the GPUs itself, or starts its own processes. Values: script, one, all.
    gpus_per_process: str = ""
    #: Cores of the host for each GPU. A GPU with more than its share of a host counts as several GPUs.
    cpus_per_gpu: int | None = None
    #: Memory of the host for each GPU, in GiB; the GPU's own is not meant. A GPU with more than its share of a host
    #: counts as several GPUs.
    memory_gib_per_gpu: int | None = None
    #: Samples per step over all GPUs, independent of their number.
    effective_batch_size: int | None = None
    #: Seed of the order of samples and of the random numbers in steps.
    seed: int = 0
    #: Longest training time that is lost if every GPU fails at once. 0: no checkpoints.
    checkpoint_seconds: int | None = None
    #: Older checkpoints are deleted.
    checkpoints_kept: int | None = None
    #: Longest time without a step, an evaluation included. A training that makes none for longer is stopped, with the
    #: stack of each process in its log.
    stall_seconds: int | None = None
    #: For a script without a session: a regular expression (RE2) with named groups for the lines of the log, such as
    #: step (?P<step>\d+): loss (?P<loss>\S+). The groups step, total_steps, epoch, total_epochs and percent give the
    #: progress, name and value together give a metric, and so does each other group.
    log_pattern: str = ""
    #: Packages that an administrator has put together under a name, instead of what the code requires.
    named_environment: str = ""
    #: Packages in addition to the cluster's, one per line, such as timm>=1.0. torch, numpy and tidepool cannot be
    #: replaced.
    requirements: str = ""
    #: Names with values, such as WANDB_MODE = offline. Values are masked on every page, but stored in plain text: for
    #: passwords and tokens there are secrets. Values are masked.
    environment: Mapping[str, Any] = field(default_factory=dict)
    #: Names of secrets, yours or the instance group's, that its processes get as variables. Logs mask the values.
    secrets: str = ""


@dataclass(frozen=True, kw_only=True)
class MetricPoint:
    """`MetricOutput` of the REST API."""

    name: str = ""
    step: int = 0
    epoch: int = 0
    #: Null: not a finite number.
    value: float | None = None
    at: datetime


@dataclass(frozen=True, kw_only=True)
class Event:
    """`EventOutput` of the REST API."""

    seq: int = 0
    old: str = ""
    new: str = ""
    reason: Reason
    actor: str = ""
    at: datetime


@dataclass(frozen=True, kw_only=True)
class Term:
    """`TermOutput` of the REST API."""

    name: str = ""
    value: str = ""
    #: Id of the other job that the row is about, if you may see it.
    job: int | None = None


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """`RemedyOutput` of the REST API."""

    #: Values: min_slots, max_slots, priority, end, hosts.
    kind: str = ""
    #: The new value; for `end` the id of the other job, for `hosts` the number of their GPUs.
    value: int | None = None
    #: GPUs that the job would have then.
    target: int = 0
    starts_now: bool = False
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Why:
    """`WhyOutput` of the REST API."""

    text: str = ""
    terms: tuple[Term, ...] = ()
    remedies: tuple[Remedy, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """`CheckpointOutput` of the REST API."""

    id: int = 0
    attempt: int = 0
    step: int = 0
    epoch: int = 0
    path: str = ""
    size_bytes: int = 0
    sha256: str = ""
    #: Why no training can resume from it; "": one can.
    problem: str = ""
    #: Whether it is kept, even when newer checkpoints are written.
    kept: bool = False
    created_at: datetime
    #: Model versions with these weights.
    versions: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class ResultFile:
    """`FileOutput` of the REST API."""

    #: Path for the download, and name in the zip file of the result.
    path: str = ""
    #: Null: in the working folder, which all attempts share.
    attempt: int | None = None
    size_bytes: int = 0
    modified_at: datetime


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """`DatasetOutput` of the REST API."""

    id: int = 0
    name: str = ""
    #: Values: images, csv, any.
    kind: str = ""
    description: str = ""
    owner: str = ""
    created_at: datetime
    #: Newest version, which new jobs use. Keys: number, path, training, validation, testing, state, progress, problem,
    #: size_bytes, file_count, digest, created_at.
    latest: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Model:
    """`ModelOutput` of the REST API."""

    id: int = 0
    name: str = ""
    description: str = ""
    owner: str = ""
    #: Values: everybody, group, owner.
    readers: str = ""
    created_at: datetime
    #: Newest version, which new jobs use. Keys: number, template, framework, engine, processes, path, entry_point,
    #: dataset, settings, parameters, text_parameters, compat, digest, created_at.
    latest: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Script:
    """`ScriptOutput` of the REST API."""

    #: Name of the model, for use in submissions.
    model: str = ""
    version: int = 0
    entry_point: str = ""
    #: Values: elastic, single, fixed.
    engine: str = ""
    #: Number of processes that a fixed-size script requests itself; null: unknown.
    processes: int | None = None
    #: Whether the script reads a dataset.
    reads_data: bool = False
    dataset: str = ""
    #: Error found by reading the script; null: none.
    warning: str | None = None


@dataclass(frozen=True, kw_only=True)
class TrialInfo:
    """`TrialOutput` of the REST API."""

    number: int = 0
    #: Id of the training.
    job: int | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    #: Values: sampler, user, seed, repeat.
    origin: str = ""
    #: Values: WAITING, RUNNING, COMPLETE, PRUNED, FAILED.
    state: str = ""
    value: float | None = None
    #: [progress, value] at each rung of the pruner; null: not a number.
    reported: Sequence[Sequence[float]] = ()
    why: str = ""
    created_at: datetime
    finished_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class StudyInfo:
    """`StudyOutput` of the REST API."""

    id: int = 0
    name: str = ""
    owner: str = ""
    model: str = ""
    dataset: str | None = None
    instance_group: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    tags: Sequence[str] = ()
    space: Mapping[str, Any] = field(default_factory=dict)
    metric: str = ""
    #: Values: minimize, maximize.
    goal: str = ""
    #: Values: last, best.
    value_of: str = ""
    sampler: str = ""
    pruner: str = ""
    seed: int = 0
    trials: int | None = None
    minutes: int | None = None
    gpu_hours: float | None = None
    at_once: int | None = None
    #: Values: RUNNING, PAUSED, FINISHED, STOPPED.
    state: str = ""
    reason: str = ""
    #: Number of trials by state.
    counts: Mapping[str, Any] = field(default_factory=dict)
    best: TrialInfo | None = None
    #: Sentence that names the best trial.
    best_text: str = ""
    revision: int = 0
    created_at: datetime
    finished_at: datetime | None = None
