from django.urls import path

from datasets import views

app_name = "datasets"
urlpatterns = [
    path("", views.dataset_list, name="list"),
    path("new/", views.dataset_new, name="new"),
    path("live.json", views.datasets_live_json, name="live"),
    path("<int:dataset_id>/", views.dataset_detail, name="detail"),
    path("<int:dataset_id>/delete/", views.dataset_delete, name="delete"),
    path("<int:dataset_id>/versions/<int:number>/delete/", views.version_delete, name="version-delete"),
    path("<int:dataset_id>/versions/<int:number>/check/", views.dataset_check, name="check"),
]
