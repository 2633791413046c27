"""Every address of the site."""

from __future__ import annotations

from django.contrib.auth.views import LoginView, LogoutView
from django.urls import URLPattern, URLResolver, include, path

from jobs import cluster_views
from webapp import views
from webapp.health import healthz

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
    path("hosts/", include("workers.urls")),
    path("healthz", healthz, name="healthz"),
    path("api/", include("webapp.api")),
]

handler400 = "webapp.views.bad_request"
handler403 = "webapp.views.permission_denied"
handler404 = "webapp.views.not_found"
handler500 = "webapp.views.server_error"
