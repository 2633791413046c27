from django.urls import path

from jobs.pages.secrets import views

app_name = "secrets"
urlpatterns = [
    path("", views.secret_list, name="list"),
    path("new/", views.secret_new, name="new"),
    path("<int:secret_id>/", views.secret_page, name="change"),
    path("<int:secret_id>/delete/", views.secret_delete, name="delete"),
]
