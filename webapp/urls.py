"""Every address of the site."""

from __future__ import annotations

from django.contrib.auth.views import LoginView, LogoutView
from django.urls import URLPattern, URLResolver, include, path

from jobs import cluster_views
from jobs.groups import fair_share_views
from jobs.usage import views as usage_views
from jobs.wmla.tools import dlicmd
from webapp import views
from webapp.audit.views import audit
from webapp.health import healthz
from webapp.metrics.views import metrics

urlpatterns: list[URLPattern | URLResolver] = [
    path("", views.overview, name="overview"),
    path("overview/live.json", views.overview_live, name="overview-live"),
    path("login/", LoginView.as_view(redirect_authenticated_user=True), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("cluster/", cluster_views.cluster, name="cluster"),
    path("cluster/live.json", cluster_views.cluster_live_json, name="cluster-live"),
    path("cluster/trace.json", cluster_views.cluster_trace_json, name="cluster-trace"),
    path("jobs/", include("jobs.urls")),
    path("datasets/", include("datasets.urls")),
    path("models/", include("models_registry.urls")),
    path("hosts/", include("jobs.machines.host_urls")),
    path("resource-groups/", include("jobs.machines.group_urls")),
    path("instance-groups/", include("jobs.groups.urls")),
    path("audit/", audit, name="audit"),
    path("", include("webapp.accounts.urls")),
    path("usage/", usage_views.usage, name="usage"),
    path("usage/report.json", usage_views.usage_report, name="usage-report"),
    path("usage/prices/<int:number>/remove/", usage_views.price_remove, name="usage-price-remove"),
    path("usage/prices/restore/", usage_views.price_restore, name="usage-price-restore"),
    path("fair-share/", fair_share_views.fair_share, name="fair-share"),
    path("fair-share/now/", fair_share_views.fair_share_now, name="fair-share-now"),
    path("healthz", healthz, name="healthz"),
    path("metrics", metrics, name="metrics"),
    path("ui/tools/dlicmd.py", dlicmd, name="dlicmd"),
    path("api/", include("webapp.api")),
    path("", include(("jobs.wmla.urls", "wmla"))),
]

handler400 = "webapp.views.bad_request"
handler403 = "webapp.views.permission_denied"
handler404 = "webapp.views.not_found"
handler500 = "webapp.views.server_error"
