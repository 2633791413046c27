from __future__ import annotations

from django.urls import path

from datasets import views

app_name = "datasets"
urlpatterns = [
    path("", views.dataset_list, name="list"),
    path("new/", views.dataset_new, name="new"),
    path("<int:dataset_id>/", views.dataset_detail, name="detail"),
]
