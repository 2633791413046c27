from django.urls import path

from models_registry.api import views

urlpatterns = [
    path("models/", views.ModelList.as_view(), name="models"),
    path("models/<str:reference>/", views.ModelDetail.as_view(), name="model"),
    path("models/<str:reference>/versions/", views.ModelVersionList.as_view(), name="model-versions"),
]
