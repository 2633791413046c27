"""Addresses of Conductor, of the deep learning service's scheduler, and of EGO."""

from __future__ import annotations

from django.urls import URLPattern

from wmla import absent, conductor_views, ego_views, scheduler_views
from wmla.view import route

__all__ = ["conductor", "ego", "scheduler"]

_SIG = "instances/<sig_id>"
_APPLICATION = f"{_SIG}/applications/<application_id>"
_SCHEDULED = "scheduler/applications/<application_id>"

conductor: list[URLPattern] = [
    route("instances", conductor_views.Instances, "instances"),
    route(f"{_SIG}/configuration", conductor_views.InstanceConfiguration, "instance-configuration"),
    route(f"{_SIG}/deploy", conductor_views.InstanceDeploy, "instance-deploy"),
    route(f"{_SIG}/start", conductor_views.InstanceStart, "instance-start"),
    route(f"{_SIG}/stop", conductor_views.InstanceStop, "instance-stop"),
    route(f"{_SIG}/sslconf/<tier>", absent.Certificates, "certificates"),
    route(f"{_SIG}/applications", conductor_views.Applications, "applications"),
    route(f"{_APPLICATION}/priority", conductor_views.ApplicationPriority, "application-priority"),
    # Before those of executors: no executor is called "logs".
    route(f"{_APPLICATION}/logs/<stream>/download", conductor_views.DriverLog, "driver-log"),
    route(f"{_APPLICATION}/<executor_id>/logs/<stream>/download", conductor_views.ExecutorLog, "executor-log"),
]

scheduler: list[URLPattern] = [
    route("scheduler/applications", scheduler_views.SchedulerApplications, "scheduler-applications"),
    route(f"{_SCHEDULED}/stop", scheduler_views.ApplicationStop, "scheduler-stop"),
    route(f"{_SCHEDULED}/driver/logs/<stream>", scheduler_views.ApplicationDriverLog, "scheduler-driver-log"),
    route(
        f"{_SCHEDULED}/executor/<executor_id>/logs/<stream>",
        scheduler_views.ApplicationExecutorLog,
        "scheduler-executor-log",
    ),
    route("scheduler/instances", scheduler_views.SchedulerInstances, "scheduler-instances"),
    route("scheduler/engine/applications", scheduler_views.EngineApplications, "engine-applications"),
    route("scheduler/engine/applications/<application_id>", scheduler_views.EngineApplication, "engine-application"),
    route("scheduler/kubernetesobjects", scheduler_views.KubernetesObjects, "kubernetes-objects"),
    route("resplans/resplantree", scheduler_views.ResourcePlanTree, "resource-plan-tree"),
    route("resplans/resplan/<plan>", scheduler_views.ResourcePlan, "resource-plan"),
]

ego: list[URLPattern] = [
    route("resourcegroups", ego_views.ResourceGroups, "ego-resource-groups"),
    route("resourcegroups/<resource_group>", ego_views.ResourceGroupDetail, "ego-resource-group"),
    route("consumers", ego_views.Consumers, "ego-consumers"),
    route("hosts", ego_views.Hosts, "ego-hosts"),
]
