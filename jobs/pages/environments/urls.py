from django.urls import path

from jobs.pages.environments import views

app_name = "environments"
urlpatterns = [
    path("", views.environment_list, name="list"),
    path("new/", views.environment_new, name="new"),
    path("<int:environment_id>/", views.environment_change, name="change"),
    path("<int:environment_id>/delete/", views.environment_delete, name="delete"),
]
