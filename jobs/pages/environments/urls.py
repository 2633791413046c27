from django.urls import path

from jobs.pages.environments import prepared, views

app_name = "environments"
urlpatterns = [
    path("", views.environment_list, name="list"),
    path("new/", views.environment_new, name="new"),
    path("<int:environment_id>/", views.environment_change, name="change"),
    path("<int:environment_id>/delete/", views.environment_delete, name="delete"),
    path("<int:environment_id>/prepare/", prepared.environment_prepare, name="prepare"),
    path("packages/<int:environment_id>/", prepared.prepared_page, name="prepared"),
    path("packages/<int:environment_id>/hosts/", prepared.prepared_hosts, name="prepared-hosts"),
    path("packages/<int:environment_id>/output/<int:host_id>/", prepared.prepared_log, name="prepared-log"),
    path("packages/<int:environment_id>/again/", prepared.prepared_again, name="prepared-again"),
    path("packages/<int:environment_id>/keep/", prepared.prepared_keep, name="prepared-keep"),
    path("packages/<int:environment_id>/remove/", prepared.prepared_remove, name="prepared-remove"),
]
