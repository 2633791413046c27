from django.urls import path

from tracking import views

app_name = "tracking"
urlpatterns = [
    path("models/<int:model_id>/share/", views.share, name="share"),
    path("jobs/<int:job_id>/register/", views.register, name="register"),
    path("versions/<int:version_id>/alias/", views.alias, name="alias"),
    path("versions/<int:version_id>/take-over/", views.take_over, name="take-over"),
]
