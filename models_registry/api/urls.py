from django.urls import path

from models_registry.api import views

urlpatterns = [
    path("templates/", views.TemplateList.as_view(), name="templates"),
    path("templates/<str:reference>/", views.TemplateDetail.as_view(), name="template"),
    path("templates/<str:reference>/take-again/", views.TemplateTakeAgain.as_view(), name="template-take-again"),
    path("templates/<str:reference>/files/", views.TemplateFiles.as_view(), name="template-files"),
    path("models/", views.ModelList.as_view(), name="models"),
    path("models/<str:reference>/", views.ModelDetail.as_view(), name="model"),
    path("models/<str:reference>/clone/", views.ModelClone.as_view(), name="model-clone"),
    path("models/<str:reference>/versions/", views.ModelVersionList.as_view(), name="model-versions"),
    path("models/<str:reference>/changes/", views.ModelChanges.as_view(), name="model-changes"),
    path("models/<str:reference>/files/", views.ModelFiles.as_view(), name="model-files"),
]
