"""Studies and their trials. The rows are the truth: the samplers' state is rebuilt from them before each proposal."""

from django.conf import settings
from django.db import models
from django.db.models import Q

from core.claims import Claimable
from core.models import NamedRow
from datasets.models import DatasetVersion
from jobs.models import InstanceGroup, Job
from models_registry.models import RegisteredModelVersion

__all__ = ["MAX_TRIALS", "NNI", "PLUGIN", "OptunaCopy", "PluginCall", "SearchPlugin", "Study", "StudyEvent", "Trial"]

#: Maximum number of trials of a study.
MAX_TRIALS = 10_000
#: Value of `Study.sampler` if a plug-in proposes the values.
PLUGIN = "plugin"
#: Dialect of studies whose scripts ask `nni` for their values.
NNI = "nni"


class SearchPlugin(NamedRow):
    """A search algorithm that a user has installed. Users who may read the model of its code may use it.

    Its code never runs in a process of the site: a training of the study's owner asks it for proposals.
    """

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="search_plugins")
    #: Files with `optimizer.py`, and with the script that asks it.
    code = models.ForeignKey(RegisteredModelVersion, on_delete=models.PROTECT, related_name="search_plugins")
    #: Level of the plug-in's log, such as INFO.
    log_level = models.CharField(max_length=16)
    #: Parts of the installation's request that have no effect here, and are repeated in answers.
    asked = models.JSONField(default=dict, blank=True)

    def __str__(self) -> str:
        return self.name


class Study(Claimable):
    """A search for the parameters with the best value of a metric; each trial is a training of one model.

    The controller claims a study for each of its turns, so that two controllers never submit the same trial.
    """

    class State(models.TextChoices):
        #: The controller submits trials.
        RUNNING = "RUNNING"
        #: No new trials; trials that have been submitted train on.
        PAUSED = "PAUSED"
        #: A limit was reached, or the space is exhausted.
        FINISHED = "FINISHED"
        #: A user stopped the study and its trials.
        STOPPED = "STOPPED"

    class Goal(models.TextChoices):
        MINIMIZE = "minimize"
        MAXIMIZE = "maximize"

    class ValueOf(models.TextChoices):
        """The value of the metric that counts as the value of a trial."""

        LAST = "last"
        BEST = "best"

    name = models.CharField(max_length=255)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="studies")
    model = models.ForeignKey(RegisteredModelVersion, on_delete=models.PROTECT, related_name="studies")
    dataset = models.ForeignKey(DatasetVersion, null=True, blank=True, on_delete=models.PROTECT, related_name="studies")
    instance_group = models.ForeignKey(InstanceGroup, on_delete=models.PROTECT, related_name="studies")
    #: Parameters that are the same in every trial, arguments behind them, and values of `jobs.options.Options`.
    parameters = models.JSONField(default=dict)
    arguments = models.JSONField(default=list)
    #: Tags of the trainings beside the study's own.
    tags = models.JSONField(default=list)
    options = models.JSONField(default=dict)

    #: Parameters that the sampler chooses, as `studies.space.space_as_json` writes them.
    space = models.JSONField()
    metric = models.CharField(max_length=200)
    goal = models.CharField(max_length=16, choices=Goal)
    value_of = models.CharField(max_length=16, choices=ValueOf, default=ValueOf.LAST)
    #: Name in `studies.samplers.SAMPLERS`, or PLUGIN, and name in `studies.pruners.PRUNERS`.
    sampler = models.CharField(max_length=16, default="tpe")
    #: The plug-in that proposes the values, if the sampler is PLUGIN; None: it was deleted, or there is none.
    plugin = models.ForeignKey(SearchPlugin, null=True, blank=True, on_delete=models.SET_NULL, related_name="studies")
    #: Arguments of the plug-in: {"hyper_parameters": [...], "options": {...}}.
    plugin_arguments = models.JSONField(default=dict, blank=True)
    #: The study has paused because its plug-in failed.
    plugin_failed = models.BooleanField(default=False)
    #: Settings of the sampler: name -> number. {}: its defaults.
    sampler_options = models.JSONField(default=dict)
    pruner = models.CharField(max_length=16, default="none")
    #: Seed of the sampler. The seed of the trainings is the option `seed`.
    seed = models.PositiveIntegerField(default=0)

    #: Limits; None: no limit. `at_once` counts submitted trials that are not over; None: as many as there are GPUs.
    trials_wanted = models.PositiveIntegerField(null=True, blank=True)
    max_minutes = models.PositiveIntegerField(null=True, blank=True)
    max_gpu_hours = models.FloatField(null=True, blank=True)
    at_once = models.PositiveIntegerField(null=True, blank=True)

    #: Parameter -> its part in the differences of the values (PED-ANOVA), and the number of finished trials of it.
    importance = models.JSONField(default=dict)
    importance_trials = models.PositiveIntegerField(default=0)

    state = models.CharField(max_length=16, choices=State, default=State.RUNNING)
    #: Sentence why the study is in its state, for pages.
    reason = models.CharField(max_length=500)
    #: Interface of the request and the script: NNI, or one of `wmla.job_names.Dialect`; "": ours.
    dialect = models.CharField(max_length=16, blank=True, default="")
    #: Parts of that interface's request that its answers repeat, the `args` of each training, and as `arguments` the
    #: script's argument for each parameter that has one. {}: ours.
    asked = models.JSONField(default=dict, blank=True)
    #: Origin of the code, as the values of `jobs.actions.source.Source`, or {}.
    source = models.JSONField(default=dict, blank=True)
    #: Incremented by each change that a page shows.
    revision = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        verbose_name_plural = "studies"
        indexes = [
            models.Index(fields=["id"], condition=Q(state__in=("RUNNING", "PAUSED")), name="study_not_over"),
            models.Index(fields=["owner", "-id"], name="study_by_owner"),
        ]
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=("RUNNING", "PAUSED", "FINISHED", "STOPPED")), name="study_state"
            ),
            models.CheckConstraint(condition=Q(goal__in=("minimize", "maximize")), name="study_goal"),
            models.CheckConstraint(
                condition=Q(state__in=("RUNNING", "PAUSED"), finished_at=None)
                | Q(state__in=("FINISHED", "STOPPED"), finished_at__isnull=False),
                name="study_finished_iff_over",
            ),
            models.CheckConstraint(
                condition=Q(trials_wanted=None) | Q(trials_wanted__gte=1, trials_wanted__lte=MAX_TRIALS),
                name="study_trials_wanted",
            ),
            models.CheckConstraint(condition=Q(at_once=None) | Q(at_once__gte=1), name="study_at_once"),
            models.CheckConstraint(condition=Q(max_gpu_hours=None) | Q(max_gpu_hours__gt=0), name="study_gpu_hours"),
            models.CheckConstraint(condition=Q(max_minutes=None) | Q(max_minutes__gt=0), name="study_minutes"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.pk})"

    @property
    def is_over(self) -> bool:
        return self.state in (self.State.FINISHED, self.State.STOPPED)

    @property
    def is_for_wmla(self) -> bool:
        return self.dialect not in ("", NNI)


class Trial(models.Model):
    """A set of values and the training that evaluates it. Both are created together, but for queued trials."""

    class State(models.TextChoices):
        #: Queued by a user: the controller submits its training before it asks the sampler.
        WAITING = "WAITING"
        #: The trial's training is submitted, and not over.
        RUNNING = "RUNNING"
        COMPLETE = "COMPLETE"
        PRUNED = "PRUNED"
        FAILED = "FAILED"

    class Origin(models.TextChoices):
        """The source of the values."""

        SAMPLER = "sampler"
        #: Chosen by a user.
        USER = "user"
        #: Values of an earlier trial with another seed.
        SEED = "seed"
        #: Values of a trial that failed without a fault of the script.
        REPEAT = "repeat"

    study = models.ForeignKey(Study, on_delete=models.CASCADE, related_name="trials")
    #: Number within the study, from 0 without gaps.
    number = models.PositiveIntegerField()
    #: The training; None: not submitted.
    job = models.OneToOneField(Job, null=True, blank=True, on_delete=models.SET_NULL, related_name="trial")
    values = models.JSONField()
    origin = models.CharField(max_length=16, choices=Origin, default=Origin.SAMPLER)
    #: Trial whose values this one has, for the origins `seed` and `repeat`.
    repeats = models.ForeignKey("Trial", null=True, blank=True, on_delete=models.SET_NULL, related_name="repeated_by")
    #: Seed of the training; None: the study's.
    job_seed = models.PositiveBigIntegerField(null=True, blank=True)
    state = models.CharField(max_length=16, choices=State, default=State.WAITING)
    #: Number of the pruner's rungs that the trial has passed.
    rung = models.PositiveIntegerField(default=0)
    #: Value of the metric, once COMPLETE or PRUNED.
    value = models.FloatField(null=True, blank=True)
    #: [[progress, value]] at the pruner's rungs, in order. Of two reports at one rung, the first counts.
    reported = models.JSONField(default=list)
    #: Data of the sampler that its next proposals need.
    attributes = models.JSONField(default=dict)
    #: Sentence why the trial was pruned or failed.
    why = models.CharField(max_length=500, blank=True, default="")
    #: True: the script is at fault, as opposed to a host or a user.
    is_script_error = models.BooleanField(default=False)
    created_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["study", "number"]
        constraints = [
            models.UniqueConstraint(fields=["study", "number"], name="trial_once"),
            models.CheckConstraint(
                condition=Q(state__in=("WAITING", "RUNNING", "COMPLETE", "PRUNED", "FAILED")), name="trial_state"
            ),
            models.CheckConstraint(
                condition=~Q(state="COMPLETE") | Q(value__isnull=False), name="complete_trial_has_a_value"
            ),
            models.CheckConstraint(
                condition=Q(state="WAITING", job=None) | ~Q(state="WAITING"), name="waiting_trial_has_no_training"
            ),
            models.CheckConstraint(
                condition=Q(state__in=("WAITING", "RUNNING"), finished_at=None)
                | (~Q(state__in=("WAITING", "RUNNING")) & Q(finished_at__isnull=False)),
                name="trial_finished_iff_over",
            ),
            models.CheckConstraint(
                condition=Q(repeats=None) | Q(origin__in=("seed", "repeat")), name="trial_repeats_another"
            ),
        ]
        indexes = [models.Index(fields=["study", "state"], name="trial_by_state")]

    def __str__(self) -> str:
        return f"trial {self.number} of study {self.study_id}"


class StudyEvent(models.Model):
    """A change of a study's state, append-only."""

    study = models.ForeignKey(Study, on_delete=models.CASCADE, related_name="events")
    new = models.CharField(max_length=16, choices=Study.State)
    #: Sentence why, as `Study.reason` had it.
    reason = models.CharField(max_length=500)
    #: User name; "": the study itself.
    actor = models.CharField(max_length=150, blank=True, default="")
    at = models.DateTimeField()

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"study {self.study_id} {self.new}"


class OptunaCopy(Claimable):
    """The state of a study's copy in the database for Optuna: see `studies.copying`."""

    study = models.OneToOneField(Study, on_delete=models.CASCADE, primary_key=True, related_name="optuna_copy")
    #: `Study.revision` that was copied last.
    copied_revision = models.PositiveIntegerField(default=0)
    next_try_at = models.DateTimeField()
    #: Sentence why the last attempt failed, or "".
    problem = models.CharField(max_length=300, blank=True, default="")
    #: Time of the first of the failed attempts in a row.
    failing_since = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(problem="", failing_since=None) | (~Q(problem="") & Q(failing_since__isnull=False)),
                name="optuna_copy_fails_iff_it_has_a_problem",
            )
        ]


class PluginCall(models.Model):
    """A call of a study's plug-in: a training that asks it for values, once. Both are created together."""

    class State(models.TextChoices):
        #: The call's training is submitted, and its answer not read.
        ASKED = "ASKED"
        #: The proposals are queued as trials.
        ANSWERED = "ANSWERED"
        FAILED = "FAILED"

    study = models.ForeignKey(Study, on_delete=models.CASCADE, related_name="plugin_calls")
    #: Number within the study, from 0 without gaps.
    number = models.PositiveIntegerField()
    job = models.OneToOneField(Job, null=True, blank=True, on_delete=models.SET_NULL, related_name="plugin_call")
    #: Number of proposals that were asked for, and that came; 0: the plug-in proposes no more.
    samples = models.PositiveIntegerField()
    proposed = models.PositiveIntegerField(default=0)
    #: Numbers of the trials whose results the plug-in was told.
    told = models.JSONField(default=list)
    state = models.CharField(max_length=16, choices=State, default=State.ASKED)
    #: True: neither the plug-in nor a user was at fault, and the call is repeated.
    is_lost = models.BooleanField(default=False)
    created_at = models.DateTimeField()

    class Meta:
        ordering = ["study", "number"]
        constraints = [
            models.UniqueConstraint(fields=["study", "number"], name="plugin_call_once"),
            models.UniqueConstraint(fields=["study"], condition=Q(state="ASKED"), name="plugin_called_once_at_a_time"),
            models.CheckConstraint(condition=Q(state__in=("ASKED", "ANSWERED", "FAILED")), name="plugin_call_state"),
        ]

    def __str__(self) -> str:
        return f"call {self.number} of the plug-in of study {self.study_id}"
