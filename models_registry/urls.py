from __future__ import annotations

from django.urls import path

from models_registry import views

app_name = "models"
urlpatterns = [
    path("", views.model_list, name="list"),
    path("new/", views.model_new, name="new"),
    path("<int:model_id>/", views.model_detail, name="detail"),
]
