"""Instance groups, jobs as submitted, their runs and events, and each user's settings of the jobs list."""

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from tidepool.rank_exits import error_words

from core.parameters import Scalar
from datasets.models import DatasetVersion
from jobs.messages import text_of, tried
from jobs.options import OptionColumns, engine_of
from jobs.states import TERMINAL, JobState, Reason, choices
from models_registry.models import RegisteredModel, RegisteredModelVersion
from scheduling.plan import PlanReason
from workers.models import ResourceGroup

__all__ = ["ChosenCharts", "ChosenColumns", "InstanceGroup", "Job", "JobEvent", "JobRun", "SavedFilter"]


class InstanceGroup(models.Model):
    """A tenant: the slots that its jobs may use, and the policy that divides them."""

    class Policy(models.TextChoices):
        FIFO = "fifo"
        PRIORITY = "priority"
        FAIRSHARE = "fairshare"
        GOODPUT = "goodput"

    class Aim(models.TextChoices):
        """Goal of the policy goodput."""

        SOON = "soon"
        EVEN = "even"
        USED = "used"

    class Isolation(models.TextChoices):
        ANY = "", "Any"
        WALLED = "walled", "Walls"
        SEPARATE = "separate", "Users of their own"
        SEALED = "sealed", "Sealed"

    class State(models.TextChoices):
        #: Created but not deployed: submissions are refused.
        REGISTERED = "REGISTERED"
        STARTED = "STARTED"
        #: Waiting jobs do not start; running jobs continue.
        STOPPED = "STOPPED"

    name = models.CharField(max_length=64, unique=True)
    description = models.CharField(max_length=200, blank=True, default="")
    #: Name of the preset that the group was created from, or "".
    template = models.CharField(max_length=64, blank=True, default="")
    state = models.CharField(max_length=16, choices=State, default=State.STARTED)
    #: Incremented by each administrator's change; forms use it to detect that they are out of date.
    revision = models.PositiveIntegerField(default=1)
    resource_group = models.ForeignKey(ResourceGroup, on_delete=models.PROTECT, related_name="instance_groups")
    policy = models.CharField(max_length=16, choices=Policy, default=Policy.FAIRSHARE)
    aim = models.CharField(max_length=16, choices=Aim, default=Aim.SOON)
    #: Weights of GPU models in a fair share, as "MODEL=WEIGHT, MODEL=WEIGHT"; see `jobs.gpu_weights`.
    gpu_weights = models.CharField(max_length=2000, blank=True, default="", db_default="")
    preemption = models.BooleanField(default=False)
    reclaim_grace_seconds = models.PositiveIntegerField(default=10)
    #: Seconds that a job runs before the scheduler may stop it for others; it may be shrunk earlier.
    minimum_run_seconds = models.PositiveIntegerField(default=0)
    #: Seconds after which a training that uses none of its GPUs is warned (0: never), whether its GPUs are then freed,
    #: and the seconds between the warning and each further step.
    idle_after_seconds = models.PositiveIntegerField(default=900, db_default=900)
    idle_reclaims = models.BooleanField(default=False, db_default=False)
    idle_grace_seconds = models.PositiveIntegerField(default=300, db_default=300)
    default_priority = models.PositiveIntegerField(default=5000)
    lowest_priority = models.PositiveIntegerField(default=1)
    highest_priority = models.PositiveIntegerField(default=10000)
    #: GPUs reserved for this group (None: no quota), and its weight in dividing the rest (0: the group gets none of
    #: it).
    quota = models.PositiveIntegerField(null=True, blank=True)
    weight = models.PositiveIntegerField(default=1)
    #: Whether the group may use more than its quota, and whether other groups may use its unused quota.
    borrows = models.BooleanField(default=True)
    lends = models.BooleanField(default=True)
    #: Level of isolation that a host needs for its trainings; "": any host will do. See `workers.isolation`.
    least_isolation = models.CharField(max_length=8, choices=Isolation, blank=True, default="", db_default="")
    #: Recorded only; they have no effect.
    execution_user = models.CharField(max_length=64, blank=True, default="")
    deployment_directory = models.CharField(max_length=4096, blank=True, default="")
    #: Users who may submit to this group. Empty: every user.
    members = models.ManyToManyField(settings.AUTH_USER_MODEL, blank=True, related_name="instance_groups")
    #: Users who may change the group's sharing rules and members, in addition to the cluster's administrators.
    admins = models.ManyToManyField(settings.AUTH_USER_MODEL, blank=True, related_name="administered_groups")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            # A group with neither a weight nor a quota would never have a GPU.
            models.CheckConstraint(condition=Q(weight__gte=1) | Q(quota__isnull=False), name="instance_group_weight"),
            models.CheckConstraint(
                condition=Q(lowest_priority__gte=1)
                & Q(default_priority__gte=F("lowest_priority"))
                & Q(highest_priority__gte=F("default_priority"))
                & Q(highest_priority__lte=10000),
                name="instance_group_priorities_in_order",
            ),
            models.CheckConstraint(
                condition=Q(state__in=["REGISTERED", "STARTED", "STOPPED"]), name="instance_group_state"
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def takes_gpus(self) -> bool:
        """Return whether running trainings can lose GPUs to others. First come, first served takes none from them."""
        return self.preemption and self.policy != self.Policy.FIFO


class FoldedName(models.CharField):  # type: ignore[type-arg]
    """Case-folded copy of `name`, for case-insensitive search and sorting.

    Python writes the column with the row. A generated column would not do: SQLite reads the whole row for it in spite
    of its index, and folds ASCII letters only.
    """

    def pre_save(self, model_instance: models.Model, add: bool) -> str:
        folded: str = model_instance.name.casefold()[: self.max_length]  # type: ignore[attr-defined]
        setattr(model_instance, self.attname, folded)
        return folded


#: Columns that the list of jobs filters and sorts by.
_LISTED = (
    "owner", "state", "model", "dataset", "instance_group", "submitted_at", "finished_at", "name_folded", "priority",
)  # fmt: skip


def _list_index(name: str, *order: str, condition: Q | None = None) -> models.Index:
    """Return an index in this order that covers all the other columns of `_LISTED`."""
    known = {field.removeprefix("-") for field in order}
    return models.Index(
        fields=[*order, *(field for field in _LISTED if field not in known)], name=name, condition=condition
    )


class Job(OptionColumns):
    """A training as submitted, with its state, its reason, and its start and end: all that lists filter, sort and show.

    The columns of its options are in `OptionColumns`.

    The values that change during the run are in a separate row, `JobRun`, so that progress reports never update the
    row that the list's indexes cover. Both rows change only through `jobs.control.transition`.
    """

    class StartsFrom(models.TextChoices):
        NOTHING = "nothing"
        WEIGHTS = "weights"
        CHECKPOINT = "checkpoint"

    name = models.CharField(max_length=255)
    #: Case-folded name, for searching and sorting the list.
    name_folded = FoldedName(max_length=255, default="", editable=False)
    # The foreign keys have no indexes of their own: see `Meta.indexes`.
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="jobs", db_index=False)
    model = models.ForeignKey(RegisteredModelVersion, on_delete=models.PROTECT, related_name="jobs", db_index=False)
    #: Version of the dataset; None: the script reads no dataset.
    dataset = models.ForeignKey(
        DatasetVersion, null=True, blank=True, on_delete=models.PROTECT, related_name="jobs", db_index=False
    )
    instance_group = models.ForeignKey(InstanceGroup, on_delete=models.PROTECT, related_name="jobs", db_index=False)

    state = models.CharField(max_length=16, choices=choices(JobState), default=JobState.PENDING)
    parameters = models.JSONField(default=dict)
    #: Arguments passed to the script after its parameters, verbatim and in this order.
    arguments = models.JSONField(default=list)
    #: Interface of the submission, a `wmla.job_names.Dialect`: WMLA clients use other ids and words for the job. "":
    #: ours.
    dialect = models.CharField(max_length=16, blank=True, default="")
    #: The `args` of a submission through WMLA's interface, verbatim; "" for other submissions.
    submitted_args = models.TextField(blank=True, default="")
    #: Number of the study whose trainings count as one training towards others; None: counts alone.
    bundle = models.PositiveBigIntegerField(null=True, blank=True)
    #: Order within the bundle: trainings of a higher rank, which have come further, are served first.
    bundle_rank = models.PositiveSmallIntegerField(default=0)
    #: Time at which a WMLA client deleted the job: hidden from WMLA clients since then, kept for usage accounting.
    hidden_at = models.DateTimeField(null=True, blank=True)
    #: Number of times that the owner changed the log pattern: identifies the pattern that a point was parsed with.
    log_pattern_revision = models.PositiveIntegerField(default=0)
    #: Initial state of the first attempt; its files are linked into the job's folder, see
    #: jobs/actions/initial_state.py.
    starts_from = models.CharField(max_length=16, choices=StartsFrom, default=StartsFrom.NOTHING)
    #: Job and checkpoint that provide the initial weights or that this job resumes; no checkpoint: the final weights.
    initial_job = models.ForeignKey(
        "Job", null=True, blank=True, on_delete=models.SET_NULL, related_name="weights_taken_by"
    )
    initial_checkpoint = models.ForeignKey(
        "Checkpoint", null=True, blank=True, on_delete=models.SET_NULL, related_name="continued_by"
    )
    #: Name of the uploaded file with the initial weights, or "".
    initial_file = models.CharField(max_length=255, blank=True, default="")

    #: Reason for the current allocation or state: code and params from the latest plan, or from the job's last event.
    reason_code = models.CharField(max_length=32, choices=choices(Reason, PlanReason), default=Reason.SUBMITTED)
    reason_params = models.JSONField(default=dict)

    submitted_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        # For the list (jobs/queries/job_list.py). Each index has all columns that the list filters and sorts by, so
        # that a
        # page reads one narrow index and its own rows. None of these columns changes while a job trains.
        indexes = [
            _list_index("job_by_submission", "-submitted_at", "-id"),
            _list_index("job_by_owner", "owner", "-submitted_at", "-id"),
            _list_index("job_by_state", "state", "-submitted_at", "-id"),
            _list_index("job_by_model", "model", "-submitted_at", "-id"),
            _list_index("job_by_dataset", "dataset", "-submitted_at", "-id"),
            _list_index("job_by_name", "name_folded", "id"),
            _list_index("job_by_priority", "-priority", "-id"),
            _list_index("job_by_end", "-finished_at", "-id", condition=Q(finished_at__isnull=False)),
            _list_index("job_not_over", "-submitted_at", "-id", condition=Q(finished_at__isnull=True)),
        ]
        constraints = [
            models.CheckConstraint(
                condition=Q(min_slots__gte=1) & Q(max_slots__gte=F("min_slots")), name="job_slots_in_order"
            ),
            models.CheckConstraint(condition=Q(priority__gte=1) & Q(priority__lte=10000), name="job_priority_range"),
            models.CheckConstraint(condition=Q(max_seconds=None) | Q(max_seconds__gte=10), name="job_max_seconds"),
            models.CheckConstraint(
                condition=Q(state__in=sorted(TERMINAL), finished_at__isnull=False)
                | (~Q(state__in=sorted(TERMINAL)) & Q(finished_at__isnull=True)),
                name="job_finished_iff_terminal",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.pk})"

    @property
    def reason_text(self) -> str:
        return text_of(self.reason_params)

    @property
    def error(self) -> dict[str, str]:
        """Return `run.error` with a message, and with a sentence about the attempts as "tried"; {} without an error."""
        if not self.run.error:
            return {}
        attempts = tried(self.reason_params)
        message = self.run.error.get("message") or self.reason_text
        return {**self.run.error, "message": message, **({"tried": attempts} if attempts else {})}

    @property
    def error_words(self) -> str:
        return error_words(self.error) if self.error else ""

    @property
    def told_parameters(self) -> dict[str, Scalar]:
        """Return the script's effective parameters: the model's, overridden by the job's and by its arguments."""
        parameters = {**self.model.parameters, **self.parameters}
        return {**parameters, **self.model.declared.values_in(self.arguments)} if self.arguments else parameters

    @property
    def dataset_name(self) -> str:
        """Return the dataset's name, or "" if the job has no dataset."""
        return self.dataset.dataset.name if self.dataset else ""

    @property
    def is_near_limit(self) -> bool:
        """Return whether the run's time limit is near and its owner has been warned."""
        return self.run.warned and self.run.ends_at is not None

    @property
    def engine(self) -> RegisteredModelVersion.Engine:
        """Return the engine of the model, or the one that the options choose instead."""
        return RegisteredModelVersion.Engine(engine_of(self.model, self.gpus_per_process))

    @property
    def elastic(self) -> bool:
        """Return whether the job may change its number of ranks; a gang's ranks start and end together."""
        return self.model.engine == RegisteredModelVersion.Engine.ELASTIC


class JobRun(models.Model):
    """The run of a job: its attempt, slots and targets, progress and error.

    Created in the job's transaction, and changed only through `jobs.control.transition`, under the lock of the job's
    row. `error` stays after the job's end and describes the last attempt.
    """

    job = models.OneToOneField(Job, on_delete=models.CASCADE, primary_key=True, related_name="run")
    #: Number of the current attempt, incremented at each start from nothing or from a checkpoint. 0: never started.
    attempt = models.PositiveIntegerField(default=0)
    #: Incremented with each change of the set of target slots.
    target_revision = models.PositiveIntegerField(default=0)
    #: Number of slots that the latest plan assigns.
    target_slots = models.PositiveIntegerField(default=0)
    #: GPU model of the target slots where the plan chose one; "": any.
    target_kind = models.CharField(max_length=128, blank=True, default="")
    #: GPU model on which its results began, if they depend on it (exactness bitwise); "": it has not begun, or they do
    #: not. See `scheduling.one_kind`.
    began_on = models.CharField(max_length=512, blank=True, default="", db_default="")
    #: World size as reported by the ranks; 0 unless the job trains.
    slots = models.PositiveIntegerField(default=0)
    #: Number of the active generation within the attempt; 0: none yet.
    generation = models.PositiveIntegerField(default=0)
    #: `max_slots` at the first start, which the effective batch size depends on from then on. 0: never started.
    first_max_slots = models.PositiveIntegerField(default=0)
    #: Host that runs the coordinator; changes only after the job has released all its slots there.
    lead_host = models.CharField(max_length=64, blank=True, default="")
    #: Raised whenever `lead_host` changes, and with each attempt; see `tidepool.fence`.
    lead_number = models.PositiveIntegerField(default=0, db_default=0)
    #: Whether the attempt's processes prove to each other that they are its own; see `tidepool.handshake`.
    sealed = models.BooleanField(default=False, db_default=False)
    #: Number of the attempt that completed the training and wrote its final weights. 0: none.
    completed_attempt = models.PositiveIntegerField(default=0)
    #: Number of consecutive attempts that were lost before they completed a step.
    fruitless_starts = models.PositiveIntegerField(default=0)
    #: GPU model -> largest micro-batch, in samples, that fits its memory, after a larger one did not (adaptive batch).
    micro_batch_limits = models.JSONField(default=dict)
    #: While PREEMPTING: deadline for stopping after a step with a checkpoint. None: the processes are terminated.
    halt_until = models.DateTimeField(null=True, blank=True)
    #: `jobs.control.outcome.Failure` of the newest attempt that ended with an error of the script, or {}.
    failure = models.JSONField(default=dict)
    #: Reason why the coordinator gave up an attempt, with the attempt's number, or {}.
    given_up = models.JSONField(default=dict)
    #: State to enter once the slots are empty, PENDING or SUSPENDED (only while PREEMPTING).
    after_stop = models.CharField(max_length=16, blank=True, default="")
    #: Time at which `max_seconds` ends the attempt, and whether the owner has been warned that it is near.
    ends_at = models.DateTimeField(null=True, blank=True)
    warned = models.BooleanField(default=False)
    #: Environment that hosts prepare before the job gets their slots; None: it requires nothing.
    required = models.ForeignKey(
        "jobs.RequiredEnvironment", null=True, blank=True, on_delete=models.SET_NULL, related_name="runs"
    )
    #: Size that the attempt keeps, because new ranks failed repeatedly. None: up to `max_slots`.
    growth_limit = models.PositiveIntegerField(null=True, blank=True)
    #: Times at which it was warned that it uses none of its GPUs, and shrunk to its minimum for that; None: it was not.
    idle_warned_at = models.DateTimeField(null=True)
    idle_shrunk_at = models.DateTimeField(null=True)
    #: Time until which its owner keeps idle GPUs, and how often that was asked for in this attempt.
    idle_kept_until = models.DateTimeField(null=True)
    idle_keeps = models.PositiveSmallIntegerField(default=0, db_default=0)
    #: Number of the newest request for the stacks of its processes, its time and its author; 0: there was none.
    stacks_number = models.PositiveIntegerField(default=0, db_default=0)
    stacks_at = models.DateTimeField(null=True, blank=True)
    stacks_by = models.CharField(max_length=150, blank=True, default="", db_default="")
    #: Kind of recording -> the newest request for one, see `jobs.files.recordings`.
    recordings = models.JSONField(default=dict, blank=True, db_default={})
    #: Number of the waiting job before which this run started, on GPUs that it needs.
    backfilled_for = models.PositiveBigIntegerField(null=True, blank=True)
    #: Whether a reservation started the run with more slots than its group's share; kept until the run ends.
    over_quota = models.BooleanField(default=False)

    step = models.PositiveBigIntegerField(default=0)
    #: Time at which steps were last reported.
    stepped_at = models.DateTimeField(null=True, blank=True)
    epoch = models.PositiveIntegerField(default=0)
    #: Fraction of the training that is done, 0 to 1; None: unknown.
    progress = models.FloatField(null=True, blank=True)
    #: Time of the newest checkpoint that the next attempt would resume from, or of the newest file in CHECKPOINT_DIR
    #: for
    #: a resumable script. None: the next attempt would start over.
    saved_at = models.DateTimeField(null=True, blank=True)
    #: Metric name -> last value, such as {"loss": 0.03, "accuracy": 97.2}. Accuracies are in percent.
    final_metrics = models.JSONField(default=dict)
    #: Digest of the value that a function returned, read when the training succeeded. "": it left none. None: it has
    #: not succeeded, or did so before such digests were kept.
    value_sha256 = models.CharField(max_length=64, null=True, db_default=None)
    #: Plain scripts only: metric name -> {"kind", "where"} of its source, see `tidepool.protocol.ObservedStep`.
    curve_sources = models.JSONField(default=dict)
    #: Plain scripts only: positions that its attempts printed, see `jobs.control.attempt_begins`.
    positions = models.JSONField(default=dict)
    #: Parts of the script's metrics that the curves lack: `names`, the largest number of metrics of a step that were
    #: left out; `gaps`, true if lines or points were written faster than they could be read.
    curve_limits = models.JSONField(default=dict)
    #: Metric -> [k, number of rows]: its rows are thinned to spans of 2**k steps. See `jobs.control.series`.
    series = models.JSONField(default=dict, db_default={})
    #: {"kind", "message", "traceback"} of the error that ended the run, or {}. An empty message stands for the job's
    #: reason.
    error = models.JSONField(default=dict)


class JobEvent(models.Model):
    """An event of a job, append-only; the job's state equals the fold of its events."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="events")
    seq = models.PositiveIntegerField()
    #: State before the event; equal to `new` if the state did not change.
    old = models.CharField(max_length=16, blank=True)
    new = models.CharField(max_length=16)
    reason = models.CharField(max_length=32, choices=choices(Reason, PlanReason))
    #: Params of the sentence, and further details.
    detail = models.JSONField(default=dict)
    #: User name, or "scheduler", "executor", "system".
    actor = models.CharField(max_length=150)
    at = models.DateTimeField()

    class Meta:
        ordering = ["job", "seq"]
        constraints = [models.UniqueConstraint(fields=["job", "seq"], name="job_event_once")]

    @property
    def text(self) -> str:
        return text_of(self.detail)


class SavedFilter(models.Model):
    """A filter of the list of jobs, saved by a user under a name."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="job_filters")
    name = models.CharField(max_length=64)
    #: Query string of the filter: `state=FAILED&within=7d`.
    parameters = models.CharField(max_length=2000)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["owner", "name"]
        constraints = [models.UniqueConstraint(fields=["owner", "name"], name="saved_filter_named_once")]


class ChosenColumns(models.Model):
    """The columns that a user last chose for the list of jobs. Columns in the address take precedence."""

    owner = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, primary_key=True, related_name="job_columns"
    )
    #: Query parameter: `reason,metric:loss`.
    columns = models.CharField(max_length=2000)

    class Meta:
        constraints = [models.CheckConstraint(condition=~Q(columns=""), name="chosen_columns_are_some")]


class ChosenCharts(models.Model):
    """The charts that a user last chose for the trainings of a model, their order, and the grouping of their lines."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="job_charts")
    model = models.ForeignKey(RegisteredModel, on_delete=models.CASCADE, related_name="+")
    #: Titles in the order of the page; charts with other titles follow in the usual order.
    order = models.JSONField(default=list)
    #: Titles of the charts that are not shown.
    hidden = models.JSONField(default=list)
    #: Grouping of the lines of a comparison, such as `model` or `setting:lr`.
    group = models.CharField(max_length=200, blank=True)
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["owner", "model"], name="chosen_charts_once")]
