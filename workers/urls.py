from __future__ import annotations

from django.urls import path

from workers import views

app_name = "workers"
urlpatterns = [
    path("", views.host_list, name="hosts"),
    path("panels/", views.host_list_panels, name="hosts-panels"),
    path("live.json", views.host_list_live, name="hosts-live"),
]
