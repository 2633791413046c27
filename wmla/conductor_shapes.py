"""Shapes of instances and applications, for the API's own description."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from core.rest import ObjectField

__all__ = [
    "ApplicationOutput",
    "ConfigurationInput",
    "EngineApplicationOutput",
    "InstanceInput",
    "InstanceOutput",
    "PriorityInput",
    "PriorityOutput",
    "ScheduledApplicationOutput",
]

_NOT_MEASURED = "Not measured here: null."


class ExecutorOutput(serializers.Serializer[Any]):
    id = serializers.CharField()
    state = serializers.CharField(help_text="LAUNCHING, RUNNING, FINISHED, ERROR, KILLED or LOST.")
    host = serializers.CharField()
    slot = serializers.IntegerField(help_text="Index of its GPU on that host.")
    rank = serializers.IntegerField(allow_null=True, help_text="Its number in the training while it trains.")


class DriverOutput(serializers.Serializer[Any]):
    id = serializers.CharField()
    containerid = serializers.CharField(allow_null=True, help_text="There are no containers: null.")
    state = serializers.CharField()
    host = serializers.CharField(allow_null=True)
    coresused = serializers.FloatField(allow_null=True, help_text=_NOT_MEASURED)
    memused = serializers.FloatField(allow_null=True, help_text=_NOT_MEASURED)
    timestamp = serializers.CharField(allow_null=True, help_text="When it started first.")


class ListedDriverOutput(DriverOutput):
    driverstdout = serializers.CharField(help_text="Address of its output.")
    driverstderr = serializers.CharField()


class TotalMemory(serializers.Serializer[Any]):
    total = serializers.IntegerField(allow_null=True, help_text="MiB over its GPUs; null where none tells.")


class TotalUtilisation(serializers.Serializer[Any]):
    total = serializers.FloatField(allow_null=True, help_text="Sum of percents over its GPUs; null where none tells.")


class MeanUtilisation(serializers.Serializer[Any]):
    mean = serializers.FloatField(allow_null=True, help_text="Percent over its held GPUs.")


class ApplicationOutput(serializers.Serializer[Any]):
    sparkinstancegroupid = serializers.CharField()
    sigName = serializers.CharField()
    applicationid = serializers.CharField()
    applicationname = serializers.CharField()
    type = serializers.CharField(help_text="BATCH.")
    state = serializers.CharField()
    uiport = serializers.IntegerField(allow_null=True, help_text="There is no Spark page: null.")
    driver = ListedDriverOutput()
    executors = ExecutorOutput(many=True, help_text="Its ranks, also after the end.")
    slots = serializers.IntegerField()
    gpuslots = serializers.IntegerField()
    demandslots = serializers.IntegerField(help_text="The most that it wants; 0 at the end.")
    hosts = serializers.IntegerField(help_text="How many it is on.")
    coresused = serializers.FloatField(allow_null=True, help_text=_NOT_MEASURED)
    memused = serializers.FloatField(allow_null=True, help_text=_NOT_MEASURED)
    gpumemused = TotalMemory()
    gpudevutil = TotalUtilisation()
    username = serializers.CharField()
    priority = serializers.IntegerField()
    submittedtime = serializers.CharField()
    endtime = serializers.CharField(allow_null=True)
    apprunduration = serializers.FloatField(help_text="Minutes since its first start.")
    model = serializers.CharField()
    dataset = serializers.CharField()
    dltype = serializers.CharField()
    tunningname = serializers.CharField()


class ScheduledApplicationOutput(ApplicationOutput):
    task0 = ListedDriverOutput(many=True, help_text="The driver.")
    task12n = ExecutorOutput(many=True, help_text="The executors.")


class EngineApplicationOutput(serializers.Serializer[Any]):
    id = serializers.CharField()
    consumer = serializers.CharField()
    submit_user = serializers.CharField()
    tag = serializers.CharField()
    name = serializers.CharField()
    priority = serializers.IntegerField()
    type = serializers.CharField()
    state = serializers.CharField()
    task12n_num = serializers.IntegerField()
    task0_resreq = serializers.CharField()
    task12n_resreq = serializers.CharField()
    used_gpu = serializers.IntegerField()
    used_mem = serializers.FloatField(allow_null=True, help_text=_NOT_MEASURED)
    used_cpu = serializers.FloatField(allow_null=True, help_text=_NOT_MEASURED)
    submit_time = serializers.IntegerField(help_text="Unix seconds, as the next two.")
    start_time = serializers.IntegerField(allow_null=True)
    end_time = serializers.IntegerField(allow_null=True)
    is_packing = serializers.BooleanField()
    pack_id = serializers.CharField()
    kernels = serializers.ListField(child=ObjectField())
    task0 = DriverOutput(many=True)
    task12n = ExecutorOutput(many=True)


class InstanceOutput(serializers.Serializer[Any]):
    id = serializers.CharField(help_text="The sigId.")
    name = serializers.CharField()
    state = serializers.CharField(help_text="REGISTERED, READY, DEPLOY_ERROR or STARTED.")
    description = serializers.CharField()
    consumerpath = serializers.CharField()
    createtime = serializers.CharField()
    runningapplications = serializers.IntegerField()
    waitingapplications = serializers.IntegerField()
    gpuslots = serializers.IntegerField(help_text="GPUs that its applications hold.")
    totalgpuslots = serializers.IntegerField(help_text="GPUs of its hosts that are ready.")
    gpumemused = TotalMemory()
    gpudevutil = MeanUtilisation()
    hosts = serializers.IntegerField()
    blockedhosts = serializers.IntegerField()
    parameters = ObjectField()
    sparkparameters = ObjectField(help_text="Those that have an effect here.")


class ConfigurationInput(serializers.Serializer[Any]):
    parameters = ObjectField(required=False, help_text="execution_user, deploy_home, executor_rg_param and others.")
    sparkparameters = ObjectField(required=False, help_text="Such as SPARK_EGO_APP_SCHEDULE_POLICY.")


class InstanceInput(ConfigurationInput):
    conductorinstancename = serializers.CharField()
    consumerpath = serializers.CharField(required=False, help_text="There is no tree of consumers: without effect.")
    template = serializers.CharField(required=False, help_text="Ours: a template here or of WMLA.")


class PriorityInput(serializers.Serializer[Any]):
    priority = serializers.IntegerField(help_text="From 1 to 10000, within the bounds of its instance group.")


class PriorityOutput(serializers.Serializer[Any]):
    applicationid = serializers.CharField()
    priority = serializers.IntegerField()
