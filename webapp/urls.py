"""Every address of the site."""

from django.contrib.auth.views import LogoutView
from django.urls import URLPattern, URLResolver, include, path

from accounts.login_page import LogIn
from core.audit.views import audit
from insights.pages import gpu_use
from insights.pages.checkpoints import views as checkpoint_views
from insights.pages.cluster import views as cluster_views
from insights.pages.groups import views as group_views
from reports.shared_view import shared_report
from webapp import views
from webapp.health import healthz
from webapp.metrics import metrics
from webapp.wheel import client_wheel, connect
from wmla.service_info import dlicmd

urlpatterns: list[URLPattern | URLResolver] = [
    path("", views.overview, name="overview"),
    path("overview/now/", views.overview_now, name="overview-now"),
    path("live/<str:topic>.json", views.topic_number, name="topic-number"),
    path("login/", LogIn.as_view(), name="login"),
    path("login/oidc/", include("accounts.organization.urls")),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("cluster/", cluster_views.cluster, name="cluster"),
    path("cluster/now/", cluster_views.cluster_now, name="cluster-now"),
    path("cluster/gpus.json", gpu_use.cluster_gpus, name="cluster-gpus"),
    path("cluster/trace.json", cluster_views.cluster_trace_json, name="cluster-trace"),
    path("jobs/", include("jobs.pages.urls")),
    path("jobs/", include("insights.pages.urls")),
    path("checkpoints/", checkpoint_views.checkpoints, name="checkpoints"),
    path("checkpoints/<int:checkpoint_id>/version/", checkpoint_views.checkpoint_version, name="checkpoint-version"),
    path("checkpoints/<int:checkpoint_id>/keep/", checkpoint_views.checkpoint_keep, name="checkpoint-keep"),
    path("reports/", include("reports.urls")),
    path("shared/<str:secret>/", shared_report, name="shared-report"),
    path("datasets/", include("datasets.urls")),
    path("models/", include("models_registry.urls")),
    path("mlflow-registry/", include("tracking.urls")),
    path("hosts/", include("insights.pages.hosts.urls")),
    path("resource-groups/", include("insights.pages.resource_groups.urls")),
    path("instance-groups/", include("insights.pages.groups.urls")),
    path("environments/", include("jobs.pages.environments.urls")),
    path("secrets/", include("jobs.pages.secrets.urls")),
    path("audit/", audit, name="audit"),
    path("alerts/", include("alerts.urls")),
    path("", include("accounts.urls")),
    path("fair-share/", group_views.fair_share, name="fair-share"),
    path("usage/", include("usage.urls")),
    path("capacity/", include("capacity.urls")),
    path("what-if/", include("replay.urls")),
    path("studies/", include("studies.urls")),
    path("help/", include("webapp.help.urls")),
    path("healthz", healthz, name="healthz"),
    path("metrics", metrics, name="metrics"),
    path("account/connect/", connect, name="connect"),
    path("ui/tools/<str:wheel>.whl", client_wheel, name="client-wheel"),
    path("ui/tools/dlicmd.py", dlicmd, name="dlicmd"),
    path("api/", include("webapp.api")),
    path("", include(("wmla.urls", "wmla"))),
]

handler400 = "webapp.views.bad_request"
handler403 = "webapp.views.permission_denied"
handler404 = "webapp.views.not_found"
handler500 = "webapp.views.server_error"
