from __future__ import annotations

from django.urls import path

from jobs.machines import group_views

app_name = "resource_groups"
urlpatterns = [
    path("", group_views.group_list, name="list"),
    path("new/", group_views.group_new, name="new"),
    path("new/preview.json", group_views.group_preview, name="preview-new"),
    path("put-back/", group_views.group_put_back, name="put-back"),
    path("<int:group_id>/", group_views.group_change, name="change"),
    path("<int:group_id>/preview.json", group_views.group_preview, name="preview"),
    path("<int:group_id>/delete/", group_views.group_delete, name="delete"),
]
