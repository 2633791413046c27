"""State of the mirror: what MLflow has been told of each job."""

from django.conf import settings
from django.db import models

from core.claims import Claimable
from jobs.models import InstanceGroup, Job
from models_registry.models import RegisteredModel
from studies.models import Study

__all__ = [
    "ExperimentReader",
    "ExperimentShare",
    "MirrorState",
    "ModelVersion",
    "TrackedRun",
    "TrackedStudy",
    "UnsentCall",
]


class TrackedRun(models.Model):
    """The run of a job in MLflow, and how much of the job's rows has arrived there."""

    job = models.OneToOneField(Job, on_delete=models.CASCADE, primary_key=True, related_name="tracked_run")
    run_id = models.CharField(max_length=32, unique=True)
    experiment_id = models.CharField(max_length=32)
    #: Numbers of the newest MetricPoint and AllocationPoint that were sent.
    sent_point = models.PositiveBigIntegerField(default=0)
    sent_allocation = models.PositiveBigIntegerField(default=0)
    #: Name of a metric -> highest step that was sent: what a restart makes again is not sent again.
    sent_steps = models.JSONField(default=dict)
    #: Names of metrics that its script logs to MLflow itself: what the site reads of them elsewhere is not sent.
    own_metrics = models.JSONField(default=list)
    #: MLflow's word for the state that was sent last; "": none.
    sent_status = models.CharField(max_length=16, blank=True, default="")
    #: All is sent: the job is over.
    is_done = models.BooleanField(default=False)

    class Meta:
        indexes = [models.Index(fields=["is_done"], condition=models.Q(is_done=False), name="runs_to_mirror")]


class TrackedStudy(models.Model):
    """The run of a study in MLflow, whose children are the runs of its trials, and what has arrived there."""

    study = models.OneToOneField(Study, on_delete=models.CASCADE, primary_key=True, related_name="tracked_study")
    run_id = models.CharField(max_length=32, unique=True)
    experiment_id = models.CharField(max_length=32)
    #: `Study.revision` that was sent last.
    sent_revision = models.PositiveIntegerField(default=0)
    #: Best value that was sent last; None: there was none.
    sent_best = models.FloatField(null=True, blank=True)
    #: Number of the newest job whose run was made a child of this one afterwards.
    sent_child = models.PositiveBigIntegerField(default=0)
    #: MLflow refuses to change the run, for example because its owner has deleted it there.
    is_given_up = models.BooleanField(default=False)


class MirrorState(Claimable):
    """The one row that the mirror claims, and by which pages know whether MLflow answers."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    #: Time of the mirror's newest call of MLflow, answered or not.
    asked_at = models.DateTimeField()
    #: Time since which MLflow has not answered; None: it answers.
    away_since = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="mirror_state_single_row")]


class UnsentCall(models.Model):
    """A call that a script logged while MLflow was away. The mirror sends it, the oldest first."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="unsent_calls")
    #: Name of the call, as in `tracking.call_rules.Call`.
    call = models.CharField(max_length=64)
    values = models.JSONField()


class ModelVersion(models.Model):
    """A version of a model in MLflow's registry whose source is a job's run; or the wish for one, without a number."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="mlflow_versions")
    #: Name of the model in MLflow.
    name = models.CharField(max_length=256)
    #: Number of the version in MLflow; None: the mirror has not created it yet.
    number = models.PositiveIntegerField(null=True, blank=True)
    #: Address where MLflow says that the version's files lie.
    source = models.CharField(max_length=1024, blank=True, default="")
    #: `champion`, `staging`: what MLflow has in place of stages.
    aliases = models.JSONField(default=list)
    #: Why MLflow refuses to make it; "": it does not, or was not asked yet.
    problem = models.CharField(max_length=500, blank=True, default="")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["name", "number"], name="mlflow_version_once"),
            models.UniqueConstraint(
                fields=["job", "name"], condition=models.Q(number=None), name="mlflow_version_asked_once"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} v{self.number}" if self.number else self.name


class ExperimentShare(models.Model):
    """A user's experiment of a model, which the members of an instance group may read, whoever these are by then."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="experiment_shares")
    model = models.ForeignKey(RegisteredModel, on_delete=models.CASCADE, related_name="experiment_shares")
    group = models.ForeignKey(InstanceGroup, on_delete=models.CASCADE, related_name="experiment_shares")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["owner", "model", "group"], name="experiment_shared_once")]


class ExperimentReader(models.Model):
    """A user who may read an experiment of somebody else's, as MLflow was told."""

    experiment_id = models.CharField(max_length=32)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["experiment_id", "user"], name="experiment_reader_once")]
