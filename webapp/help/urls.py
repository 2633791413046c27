from django.urls import path

from webapp.help import views

app_name = "help"
urlpatterns = [
    path("", views.contents, name="contents"),
    path("files/<path:path>", views.file, name="file"),
    path("api/", views.api_reference, name="api"),
    path("operator/<slug:name>/", views.admin_document, name="admin-document"),
    path("<slug:name>/", views.document, name="document"),
]
