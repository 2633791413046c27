from django.urls import path

from insights.pages.resource_groups import views

app_name = "resource_groups"
urlpatterns = [
    path("", views.group_list, name="list"),
    path("new/", views.group_new, name="new"),
    path("new/preview.json", views.group_preview, name="preview-new"),
    path("put-back/", views.group_put_back, name="put-back"),
    path("<int:group_id>/", views.group_change, name="change"),
    path("<int:group_id>/preview.json", views.group_preview, name="preview"),
    path("<int:group_id>/delete/", views.group_delete, name="delete"),
]
