from django.urls import path

from datasets.api import views

_version = "datasets/<str:reference>/versions/<int:number>/"
urlpatterns = [
    path("datasets/", views.DatasetList.as_view(), name="datasets"),
    path("datasets/<str:reference>/", views.DatasetDetail.as_view(), name="dataset"),
    path("datasets/<str:reference>/versions/", views.DatasetVersionList.as_view(), name="dataset-versions"),
    path(_version, views.DatasetVersionView.as_view(), name="dataset-version"),
    path(f"{_version}check/", views.DatasetCheck.as_view(), name="dataset-check"),
    path(f"{_version}samples/<int:index>/", views.DatasetSample.as_view(), name="dataset-sample"),
]
