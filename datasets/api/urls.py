from django.urls import path

from datasets.api import views

urlpatterns = [
    path("datasets/", views.DatasetList.as_view(), name="datasets"),
    path("datasets/<str:reference>/", views.DatasetDetail.as_view(), name="dataset"),
    path("datasets/<str:reference>/versions/", views.DatasetVersionList.as_view(), name="dataset-versions"),
]
